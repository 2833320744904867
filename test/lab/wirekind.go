package lab

import (
	"fmt"
	"slices"
	"strings"
)

// WireKind says what the devices between the nodes can cut, and so which superpackets cross whole.
//
// A veth pair as it is made passes on superpackets of every kind, and joins nothing. No
// network card does either. On the other wires the nodes' devices lack what cards lack, and
// each frame that arrives takes NAPI and GRO, as it does behind every card's driver: so a
// socket with UDP_GRO gets runs of datagrams, and a tunnel's inner packets are joined.
type WireKind uint8

const (
	_ WireKind = iota
	// WireFull is a veth pair as it is made.
	WireFull
	// WireUSO is like a card that cuts TCP and runs of UDP datagrams (UDP_SEGMENT), but no
	// superpackets of UDP tunnels. A run crosses whole.
	WireUSO
	// WirePlain is like a card that cuts TCP only, as in most virtual machines: a superpacket
	// of UDP is cut by the kernel before it leaves, whatever it is.
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

// WireKinds are all of them, from the one that can most.
func WireKinds() []WireKind { return []WireKind{WireFull, WireUSO, WirePlain} }

// ParseWireKind is the kind with that name.
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
