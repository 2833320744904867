package lab

import (
	"maps"
	"strings"

	"weft/test/lab/netns"
)

// uncut returns the features of a sending device that a wire lacks, each with false.
func uncut(wire string) map[string]bool {
	off := map[string]bool{}
	if wire == WireFull {
		return off
	}
	off["tx-udp_tnl-segmentation"], off["tx-udp_tnl-csum-segmentation"] = false, false
	if wire == WirePlain {
		off["tx-udp-segmentation"] = false
	}
	return off
}

// playCard makes a host's device like a card of the wire. The kernel then cuts what the device cannot
// cut, and what arrives goes through NAPI and GRO, if the device at the other end lets it (playSwitch).
func playCard(wire string, n *netns.Namespace, device string) error {
	if wire == WireFull {
		return nil
	}
	want := uncut(wire)
	want["rx-gro"] = true
	return n.SetFeatures(device, want)
}

// playSwitch makes the device at the other end from a host's card hand frames to that card as a real
// wire does. A veth gives a frame to its peer's NAPI only if it could not have passed on a TCP
// superpacket itself (veth_skb_is_eligible_for_gro in the kernel's veth.c). So segmentation of TCP is
// turned off: TCP is cut here, and the card joins it again. On a direct cable each end is both card and
// switch, so a node's TCP outside of any tunnel is cut in software there.
func playSwitch(wire string, n *netns.Namespace, device string) error {
	if wire == WireFull {
		return nil
	}
	has, err := n.Features(device)
	if err != nil {
		return err
	}
	want := uncut(wire)
	maps.DeleteFunc(has, func(name string, _ bool) bool {
		return !strings.HasPrefix(name, "tx-tcp") || !strings.HasSuffix(name, "-segmentation")
	})
	for name := range has {
		want[name] = false
	}
	return n.SetFeatures(device, want)
}
