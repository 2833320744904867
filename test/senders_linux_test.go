package test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// refusesSenders makes node 2's host send packets to a pod of node 1 whose inner sources are not node 2's, in
// the network's own format and with the default SourceCheck. None arrives, and each is counted as dropped.
func refusesSenders(t *testing.T, l *lab.Lab, families []int) {
	t.Helper()
	to, from, other := l.Node(1), l.Node(2), l.Node(3)
	for _, family := range families {
		sources := []string{"8.8.8.8", "240.0.0.1", other.Pods[0].V4.String(), to.Underlay4.String()}
		outer := to.Underlay4
		if family == 6 {
			sources = []string{"2001:db8::1", other.Pods[0].V6.String(), to.Underlay6.String()}
		}
		s := current(t, to)
		if !outer.IsValid() || family == 6 && (s.Backend.Type == "vxlan" || len(families) == 1) {
			outer = to.Underlay6
		}
		pod := to.Pods[0].Addr(family)
		c := dialUDP(t, from.Host, netip.AddrPortFrom(outer, uint16(s.Backend.Port)))
		still(t, to)
		for _, src := range sources {
			packet := inner(t, src, pod.String(), secretPort, 64, "forged")
			if s.Backend.Type == "vxlan" {
				packet = frame(t, macOf(t, l, to, family), macOf(t, l, from, family), packet)
			}
			before := current(t, to).Counters.Ingress
			if _, err := c.Write(packet); err != nil {
				t.Fatal(err)
			}
			after := status(t, to, await.Patience, func(s statusJSON) error {
				if c := s.Counters.Ingress; c.dropped("foreign_source") == before.dropped("foreign_source") ||
					!c.balanced() {
					return fmt.Errorf("inner source %s: not dropped as foreign_source: before %+v, after %+v",
						src, before, c)
				}
				return nil
			}).Counters.Ingress
			// The nodes' own questions to each other may be delivered meanwhile.
			if after.Received-before.Received-(after.Delivered-before.Delivered) != 1 ||
				after.dropped("foreign_source") != before.dropped("foreign_source")+1 {
				t.Errorf("inner source %s: before %+v, after %+v", src, before, after)
			}
		}
	}
}

func dialUDP(t *testing.T, h *lab.Host, to netip.AddrPort) net.Conn {
	t.Helper()
	var c net.Conn
	if err := h.Do(func() (err error) { c, err = net.Dial("udp", to.String()); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
