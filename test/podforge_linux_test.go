package test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/lab"
)

// third is a node that has a record in the store and does not exist. Pods forge its addresses.
const (
	third4, third6       = "198.18.0.99", "fd18::63"
	thirdNet4, thirdNet6 = "10.42.253.9", "fd42:0:0:fd::9"
)

// podsForge makes a pod with CAP_NET_RAW send to the overlay's port, as if from another node: to its own node
// and to b's, with a packet for one of their pods inside. However the host filters reverse paths, and
// whatever it marks and masquerades, no such packet arrives, and each is counted.
func podsForge(t *testing.T, l *lab.Lab, a, b *lab.Pod, families []int) {
	t.Helper()
	n, s := a.Node, current(t, a.Node)
	vxlan := s.Backend.Type == "vxlan"
	data := map[bool]string{
		true: `"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"0e:00:00:00:04:63"},"BackendV6Data":{"VNI":1,"VtepMAC":"0e:00:00:00:06:63"}`, false: `"BackendType":""`}[vxlan]
	key := "10.42.253.0-24"
	if len(families) > 1 {
		key += "&fd42:0:0:fd::-64"
	}
	put(t, l.Store, prefix+"/subnets/"+key, `{"PublicIP":"`+third4+`","PublicIPv6":"`+third6+`",`+data+`}`, 0)
	for _, node := range []*lab.Node{n, b.Node} {
		knows(t, node, await.Patience, "10.42.253.0/24", true)
		rulesOf(t, node, func(r rulesJSON) bool { return r.Rules.InPlace })
	}
	ears := map[*lab.Pod]*net.UDPConn{a: hear(t, a.Host, secretPort), b: hear(t, b.Host, secretPort)}
	for _, setting := range []string{
		"for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$f; done",
		"for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 2 >$f; done",
		// As kube-proxy does.
		"for t in iptables ip6tables; do $t -t mangle -A PREROUTING -i cni0 -j MARK --set-xmark 0x4000/0x4000; " +
			"$t -t nat -A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE; done",
	} {
		sh(t, n.Host, setting)
		before := rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace }).Rules
		sent := uint64(0)
		for _, family := range families {
			from := netip.MustParseAddr(map[int]string{4: third4, 6: third6}[family])
			src := map[int]string{4: thirdNet4, 6: thirdNet6}[family]
			for _, victim := range []*lab.Pod{a, b} {
				to := map[int]netip.Addr{4: victim.Node.Underlay4, 6: victim.Node.Underlay6}[family]
				packet := inner(t, src, victim.Addr(family).String(), secretPort, 64, "forged")
				if vxlan {
					packet = frame(t, macOf(t, l, victim.Node, family), encap.MAC{0x0e, 5: 0x63}, packet)
				}
				speakFor(t, a.Host, from, netip.AddrPortFrom(to, uint16(s.Backend.Port)), packet)
				sent++
			}
		}
		await.OK(t, setting, func() error {
			r, err := ask[rulesJSON](t.Context(), n, "status")
			if err == nil && r.Rules.PodsDropped != before.PodsDropped+sent {
				err = fmt.Errorf("of %d forged datagrams %d are dropped", sent, r.Rules.PodsDropped-before.PodsDropped)
			}
			return err
		})
	}
	// Honest packets have addresses of their own, so that the test can tell them apart.
	sh(t, n.Host, "for t in iptables ip6tables; do $t -t mangle -D PREROUTING -i cni0 -j MARK --set-xmark "+
		"0x4000/0x4000; $t -t nat -D POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE; done")
	for _, p := range []*lab.Pod{a, b} {
		hearsFirst(t, ears[p], map[*lab.Pod]*lab.Pod{a: b, b: a}[p], netip.AddrPortFrom(p.V4, secretPort))
	}
	del(t, l.Store, prefix+"/subnets/"+key)
	for _, node := range []*lab.Node{n, b.Node} {
		knows(t, node, await.Patience, "10.42.253.0/24", false)
	}
}

// speakFor sends a datagram with somebody else's address.
func speakFor(t *testing.T, from *lab.Host, src netip.Addr, to netip.AddrPort, payload []byte) {
	t.Helper()
	sendAs(t, from, src, to, 0, payload)
}

// sendAs sends a datagram with any source address, from the port that it is for.
func sendAs(t *testing.T, from *lab.Host, src netip.Addr, to netip.AddrPort, tos uint8, payload []byte) {
	t.Helper()
	udp := &proto.UDP{SrcPort: proto.UDPPort(to.Port()), DstPort: proto.UDPPort(to.Port())}
	family, sockaddr := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{})
	ip := gopacket.NetworkLayer(&proto.IPv4{
		Version: 4, TTL: 64, TOS: tos, Protocol: proto.IPProtocolUDP,
		SrcIP: src.AsSlice(), DstIP: to.Addr().AsSlice(),
	})
	if src.Is6() {
		family, sockaddr = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16()}
		ip = &proto.IPv6{
			Version: 6, HopLimit: 64, NextHeader: proto.IPProtocolUDP,
			SrcIP: src.AsSlice(), DstIP: to.Addr().AsSlice(),
		}
	} else {
		sockaddr.(*unix.SockaddrInet4).Addr = to.Addr().As4()
	}
	b := serialize(t, ip, udp, payload)
	err := from.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b, 0, sockaddr)
	})
	if err != nil {
		t.Fatalf("from %v to %v: %v", src, to, err)
	}
}

// frame puts a packet into what one node sends to another in format vxlan.
func frame(t *testing.T, to, from encap.MAC, packet []byte) []byte {
	t.Helper()
	e := encap.Ethernet{Dst: to, Src: from, Type: encap.EtherTypeIPv4}
	if packet[0]>>4 == 6 {
		e.Type = encap.EtherTypeIPv6
	}
	b, err := encap.AppendVXLAN(nil, encap.VXLAN{VNI: 1, Ethernet: e})
	if err != nil {
		t.Fatal(err)
	}
	return append(b, packet...)
}

// macOf is the MAC that a node has published for its device of a family.
func macOf(t *testing.T, l *lab.Lab, n *lab.Node, family int) encap.MAC {
	t.Helper()
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
