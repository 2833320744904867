package lab

import (
	"fmt"
	"slices"
	"strings"
)

// WireKind says what the devices between the nodes can cut, and so which superpackets cross whole.
//
// A veth pair that is left as it was made passes on superpackets of every kind whole, and joins none
// of the packets that arrive. No network card is like that. On the other wires the nodes' devices
// lack the features that cards lack, and each frame that arrives goes through NAPI and GRO, as behind
// every card's driver: a socket with UDP_GRO gets runs of datagrams, and the inner packets of a
// tunnel are joined.
type WireKind uint8

const (
	_ WireKind = iota
	// WireFull is a veth pair that is left as it was made.
	WireFull
	// WireUSO is like a card that cuts TCP and runs of UDP datagrams (UDP_SEGMENT), but not the
	// superpackets of UDP tunnels. So a run crosses whole.
	WireUSO
	// WirePlain is like a card that cuts TCP only, as in most virtual machines: the kernel cuts every
	// superpacket of UDP before it leaves.
	WirePlain
)

func (k WireKind) String() string {
	switch k {
	case WireFull:
		return "full"
	case WireUSO:
		return "uso"
	case WirePlain:
		return "plain"
	default:
		return fmt.Sprintf("WireKind(%d)", uint8(k))
	}
}

// WireKinds returns all kinds. The devices of each cut less than those of the kind before it.
func WireKinds() []WireKind { return []WireKind{WireFull, WireUSO, WirePlain} }

// ParseWireKind returns the kind with that name.
func ParseWireKind(name string) (WireKind, error) {
	var names []string
	for _, k := range WireKinds() {
		names = append(names, k.String())
	}
	if i := slices.Index(names, name); i >= 0 {
		return WireKinds()[i], nil
	}
	return 0, fmt.Errorf("wire %q: want one of %s", name, strings.Join(names, ", "))
}
