package probe

import "fmt"

// About says what the probes travel by, for likely causes.
type About struct {
	// Port is the overlay's UDP port, and Protocol its IP protocol if that has no ports; both 0 if packets go without a tunnel.
	Port     uint16
	Protocol uint8
	// Overhead is what the tunnel adds to an inner packet, in bytes.
	Overhead int
	// Daemon says that the peers' weftd moves their packets itself, so that without it nothing passes.
	Daemon bool
}

// Tunnelled reports whether packets go through a tunnel.
func (a About) Tunnelled() bool { return a.Port != 0 || a.Protocol != 0 }

// wireWords are words for the overlay's packets as they are on the wire.
type wireWords struct {
	outer, dump string // in a sentence, and for tcpdump
	what        string // in short
	holder      string // a command that shows who takes them on a host
	device      string // the type of the kernel's device that takes them
}

func (a About) onTheWire() wireWords {
	if a.Protocol != 0 {
		return wireWords{fmt.Sprintf("IP protocol %d", a.Protocol), fmt.Sprintf("ip proto %d", a.Protocol), "the protocol", "ss -wlnp and ip -d link show type ipip", "ipip"}
	}
	return wireWords{fmt.Sprintf("UDP port %d", a.Port), fmt.Sprintf("udp port %d", a.Port), "the port", fmt.Sprintf("ss -lun sport = :%d", a.Port), "vxlan"}
}
