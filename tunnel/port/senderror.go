package port

import "net/netip"

// SendError is what an ICMP message said about a datagram of ours.
type SendError struct {
	Dst    netip.Addr // outer destination of the datagram
	TooBig bool       // packet too big; MTU is the next hop's
	MTU    int        // bytes, as claimed: hostile until clamped
	// Why is not 0 if the datagram does not arrive, as By says: hostile, and only shown.
	Why UnreachableWhy
	By  netip.Addr
}

// UnreachableWhy is the reason that a message gives.
type UnreachableWhy uint8

// The reasons, by type and code of ICMP and ICMPv6 (RFC 792, RFC 1812, RFC 4443).
const (
	_                     UnreachableWhy = iota
	UnreachablePort                      // nothing listens there, or a rule pretends so
	UnreachableProtocol                  // nothing there takes the IP protocol
	UnreachableProhibited                // a rule forbids it
	UnreachableHost                      // the host is not reached from By
	UnreachableNet                       // By has no route
	UnreachableOther
)

func (y UnreachableWhy) String() string {
	switch y {
	case UnreachablePort:
		return "port unreachable"
	case UnreachableProtocol:
		return "protocol unreachable"
	case UnreachableProhibited:
		return "administratively prohibited"
	case UnreachableHost:
		return "host unreachable"
	case UnreachableNet:
		return "network unreachable"
	case UnreachableOther:
	}
	return "unreachable"
}

// whyOf reads type and code of a message that says that a datagram does not arrive; 0 for any other.
func whyOf(six bool, kind, code byte) UnreachableWhy {
	if six {
		if kind != 1 {
			return 0
		}
		switch code {
		case 0:
			return UnreachableNet
		case 1, 5, 6:
			return UnreachableProhibited
		case 3:
			return UnreachableHost
		case 4:
			return UnreachablePort
		}
		return UnreachableOther
	}
	if kind != 3 || code == 4 { // which is about the size
		return 0
	}
	switch code {
	case 0, 6, 11:
		return UnreachableNet
	case 1, 7, 12:
		return UnreachableHost
	case 2:
		return UnreachableProtocol
	case 3:
		return UnreachablePort
	case 9, 10, 13:
		return UnreachableProhibited
	}
	return UnreachableOther
}
