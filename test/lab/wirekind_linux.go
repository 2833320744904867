package lab

import (
	"maps"
	"strings"
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
func (l *Lab) playCard(h *Host, device string) error {
	if l.Spec.Wire == WireFull {
		return nil
	}
	want := l.Spec.Wire.uncut()
	want["rx-gro"] = true
	return h.NS.SetFeatures(device, want)
}

// playSwitch makes a device that faces a host's card pass on frames as they come from a
// wire. A veth hands a frame to the NAPI of its peer only if it could not have passed on a
// TCP superpacket itself (veth_skb_is_eligible_for_gro in the kernel's veth.c), so it must
// not be able to: TCP is cut here, and joined again behind, as from a real wire. Of a direct
// cable each end is both, and its node's TCP, outside of any tunnel, is cut in software.
func (l *Lab) playSwitch(h *Host, device string) error {
	if l.Spec.Wire == WireFull {
		return nil
	}
	has, err := h.NS.Features(device)
	if err != nil {
		return err
	}
	want := l.Spec.Wire.uncut()
	maps.DeleteFunc(has, func(name string, _ bool) bool {
		return !strings.HasPrefix(name, "tx-tcp") || !strings.HasSuffix(name, "-segmentation")
	})
	for name := range has {
		want[name] = false
	}
	return h.NS.SetFeatures(device, want)
}
