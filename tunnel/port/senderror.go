package port

import "net/netip"

// SendError is an ICMP error about a sent datagram.
type SendError struct {
	Dst    netip.Addr // outer destination of the datagram
	TooBig bool       // packet too big: MTU has the next hop's
	MTU    int        // bytes, as claimed; not trusted
	// Why is not 0 if By says that the datagram did not arrive. It is not trusted, and only reported.
	Why UnreachableWhy
	By  netip.Addr
}

// UnreachableWhy is the reason in an ICMP message that a destination is unreachable.
type UnreachableWhy uint8

// The reasons, by types and codes of ICMP and ICMPv6 (RFC 792, RFC 1812, RFC 4443).
const (
	_                     UnreachableWhy = iota
	UnreachablePort                      // no listener, or a firewall rule
	UnreachableProtocol                  // the host does not support the IP protocol
	UnreachableProhibited                // a firewall rule
	UnreachableHost                      // By cannot reach the host
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

// whyOf returns the reason for the type and code of an ICMP message, or 0 if it is no destination-unreachable
// error.
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
	if kind != 3 || code == 4 { // code 4 means fragmentation needed
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
