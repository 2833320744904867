package lab

import (
	"maps"
	"strings"

	"weft/test/lab/netns"
)

// uncut are the features of a sending device that a wire of this kind lacks, each off.
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

// playCard makes a host's device like a card of the wire's kind: what it cannot cut is cut
// before it, and what arrives takes NAPI and GRO, if the device at the other end lets it.
func (k WireKind) playCard(n *netns.Namespace, device string) error {
	if k == WireFull {
		return nil
	}
	want := k.uncut()
	want["rx-gro"] = true
	return n.SetFeatures(device, want)
}

// PlayEnd makes a veth device one end of a cable of that kind between two hosts. The other
// end needs the same. The device must be as it was made.
func (k WireKind) PlayEnd(n *netns.Namespace, device string) error {
	if err := k.playCard(n, device); err != nil {
		return err
	}
	return k.playSwitch(n, device)
}

// playSwitch makes a device that faces a host's card pass on frames as they come from a
// wire. A veth hands a frame to the NAPI of its peer only if it could not have passed on a
// TCP superpacket itself (veth_skb_is_eligible_for_gro in the kernel's veth.c), so it must
// not be able to: TCP is cut here, and joined again behind, as from a real wire. Of a direct
// cable each end is both, and its node's TCP, outside of any tunnel, is cut in software.
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
