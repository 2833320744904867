package lab

import (
	"maps"
	"strings"

	"weft/test/lab/netns"
)

// uncut returns the features of a sending device that a wire of this kind lacks, each with false.
func (k WireKind) uncut() map[string]bool {
	off := map[string]bool{}
	if k == WireFull {
		return off
	}
	off["tx-udp_tnl-segmentation"], off["tx-udp_tnl-csum-segmentation"] = false, false
	if k == WirePlain {
		off["tx-udp-segmentation"] = false
	}
	return off
}

// playCard makes a host's device like a card of the wire's kind. The kernel then cuts what the device cannot
// cut, and what arrives goes through NAPI and GRO, if the device at the other end lets it (playSwitch).
func (k WireKind) playCard(n *netns.Namespace, device string) error {
	if k == WireFull {
		return nil
	}
	want := k.uncut()
	want["rx-gro"] = true
	return n.SetFeatures(device, want)
}

// PlayEnd makes a veth device one end of a cable of that kind between two hosts. It has to be called for
// both ends, and no feature of the device may have been changed before.
func (k WireKind) PlayEnd(n *netns.Namespace, device string) error {
	if err := k.playCard(n, device); err != nil {
		return err
	}
	return k.playSwitch(n, device)
}

// playSwitch makes the device at the other end from a host's card hand frames to that card as a real
// wire does. A veth gives a frame to its peer's NAPI only if it could not have passed on a TCP
// superpacket itself (veth_skb_is_eligible_for_gro in the kernel's veth.c). So segmentation of TCP is
// turned off: TCP is cut here, and the card joins it again. On a direct cable each end is both card and
// switch, so a node's TCP outside of any tunnel is cut in software there.
func (k WireKind) playSwitch(n *netns.Namespace, device string) error {
	if k == WireFull {
		return nil
	}
	has, err := n.Features(device)
	if err != nil {
		return err
	}
	want := k.uncut()
	maps.DeleteFunc(has, func(name string, _ bool) bool {
		return !strings.HasPrefix(name, "tx-tcp") || !strings.HasSuffix(name, "-segmentation")
	})
	for name := range has {
		want[name] = false
	}
	return n.SetFeatures(device, want)
}
