package encap

import "net/netip"

// MartianSource reports whether no packet that crosses the overlay can have the source a. Such addresses mean
// this host (loopback, unspecified, 0/8), this link (link-local), or many hosts (multicast, limited
// broadcast), or are IPv4 addresses in a native IPv6 header (RFC 1812 §5.3.7, RFC 6890, RFC 4291 §2.5). The
// zero Addr is martian. 240/4 is not, because some networks use it as private space.
func MartianSource(a netip.Addr) bool { return martian(a) }

// MartianDestination reports whether no packet to a can cross the overlay: a router must not forward it (RFC
// 1812 §5.3.7, RFC 4291 §2.5), and the overlay has no multicast routing.
func MartianDestination(a netip.Addr) bool { return martian(a) }

func martian(a netip.Addr) bool {
	if a.Is4() {
		b := a.As4()
		switch b[0] {
		case 0, 127:
			return true
		case 169:
			return b[1] == 254
		}
		return b[0]&0xf0 == 0xe0 || b == [4]byte{255, 255, 255, 255}
	}
	return !a.IsValid() || a.Is4In6() || a.IsUnspecified() || a.IsLoopback() ||
		a.IsMulticast() || a.IsLinkLocalUnicast()
}
