package test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/test/lab"
)

// refusesSenders has node 2's host send packets to a pod of node 1 whose inner sources are not node 2's, in
// the network's own format and without a word in the network config about how far senders are
// checked. None gets there, and each is counted as dropped.
func refusesSenders(t *testing.T, l *lab.Lab, families []int) {
	t.Helper()
	to, from, other := l.Node(1), l.Node(2), l.Node(3)
	for _, family := range families {
		sources := []string{"8.8.8.8", "240.0.0.1", other.Pods[0].V4.String(), to.Underlay4.String()}
		outer := to.Underlay4
		if family == 6 {
			sources = []string{"2001:db8::1", other.Pods[0].V6.String(), to.Underlay6.String()}
		}
		s := status(t, to, 5*time.Second, func(statusJSON) error { return nil })
		if !outer.IsValid() || family == 6 && (s.Backend.Type == "vxlan" || len(families) == 1) {
			outer = to.Underlay6
		}
		pod := to.Pods[0].Addr(family)
		c := dialUDP(t, from.Host, netip.AddrPortFrom(outer, uint16(s.Backend.Port)))
		for _, src := range sources {
			packet := inner(t, src, pod.String(), secretPort, 64, "forged")
			if s.Backend.Type == "vxlan" {
				packet = framed(t, l, to, from, family, packet)
			}
			before := status(t, to, 5*time.Second, func(statusJSON) error { return nil }).Counters.Ingress
			if _, err := c.Write(packet); err != nil {
				t.Fatal(err)
			}
			after := status(t, to, 5*time.Second, func(s statusJSON) error {
				if s.Counters.Ingress.Received == before.Received {
					return fmt.Errorf("nothing has come in since %+v", before)
				}
				return nil
			}).Counters.Ingress
			if after.Delivered != before.Delivered || after.dropped("foreign_source") != before.dropped("foreign_source")+1 {
				t.Errorf("inner source %s: before %+v, after %+v", src, before, after)
			}
		}
	}
}

// framed puts a packet into the frame and the header of vxlan that one node sends to another.
func framed(t *testing.T, l *lab.Lab, to, from *lab.Node, family int, packet []byte) []byte {
	t.Helper()
	mac := func(n *lab.Node) encap.MAC {
		for _, kv := range list(t, l.Store, prefix+"/subnets/") {
			var r struct {
				PublicIP, PublicIPv6       netip.Addr
				BackendData, BackendV6Data struct{ VtepMAC string }
			}
			if err := json.Unmarshal([]byte(kv.value), &r); err != nil {
				t.Fatal(err)
			}
			if r.PublicIP != n.Underlay4 && r.PublicIPv6 != n.Underlay6 {
				continue
			}
			m, err := net.ParseMAC(map[int]string{4: r.BackendData.VtepMAC, 6: r.BackendV6Data.VtepMAC}[family])
			if err != nil {
				t.Fatal(err)
			}
			return encap.MAC(m)
		}
		t.Fatalf("no record of %s", n.Name)
		return encap.MAC{}
	}
	e := encap.Ethernet{Dst: mac(to), Src: mac(from), Type: map[int]uint16{4: encap.EtherTypeIPv4, 6: encap.EtherTypeIPv6}[family]}
	b, err := encap.AppendVXLAN(nil, encap.VXLAN{VNI: 1, Ethernet: e})
	if err != nil {
		t.Fatal(err)
	}
	return append(b, packet...)
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
