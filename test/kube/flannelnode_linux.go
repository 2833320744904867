package kube

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"weft/encap"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// AnnotationPrefix is flannel's own, and weft's default.
const AnnotationPrefix = "flannel.alpha.coreos.com/"

// FlannelNode is a node as flannel's vxlan backend makes it: a Node object with flannel's annotations,
// and in a host of its own a vxlan device whose peers are told by hand, from what the others' annotations
// say and nothing else.
type FlannelNode struct {
	*lab.Node
	Object string
	// V4 and V6 are its podCIDRs; its one pod is the host itself, at the second address of each.
	V4, V6 netip.Prefix

	links   []netlink.Link // of IPv4 and IPv6
	bridged bool           // its pods are behind a bridge instead
}

// vxlanData is backend-data of flannel's vxlan backend.
type vxlanData struct {
	VNI     int
	VtepMAC string
}

// Flannel's defaults.
const (
	vxlanID   = 1
	vxlanPort = encap.PortVXLAN
	vxlanMTU  = 1430 // over an underlay of either family
)

// FlannelAnnotations are those of a vxlan node at address with these hardware addresses.
func FlannelAnnotations(v4, v6 netip.Addr, mac4, mac6 string) map[string]string {
	data := func(mac string) string {
		text, _ := json.Marshal(vxlanData{vxlanID, mac}) // of plain strings and numbers: never fails
		return string(text)
	}
	out := map[string]string{
		AnnotationPrefix + "kube-subnet-manager": "true",
		AnnotationPrefix + "backend-type":        "vxlan",
		AnnotationPrefix + "public-ip":           v4.String(),
		AnnotationPrefix + "backend-data":        data(mac4),
	}
	if v6.IsValid() {
		out[AnnotationPrefix+"public-ipv6"], out[AnnotationPrefix+"backend-v6-data"] = v6.String(), data(mac6)
	}
	return out
}

// AddFlannelNode makes the host and the Node object, with podCIDRs 10.244.<number>.0/24 and
// fd42:0:0:<number>::/64.
func (c *Cluster) AddFlannelNode(t *testing.T, name string, number byte) *FlannelNode {
	t.Helper()
	f := &FlannelNode{Node: c.Host(t), Object: name}
	f.V4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, number, 0}), 24)
	f.V6 = netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 0x42, 7: number}), 64)
	var macs []string
	for i, subnet := range []netip.Prefix{f.V4, f.V6} {
		link := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: []string{"flannel.1", "flannel-v6.1"}[i], MTU: vxlanMTU},
			VxlanId:   vxlanID, SrcAddr: []netip.Addr{f.Underlay4, f.Underlay6}[i].AsSlice(), Port: vxlanPort,
			VtepDevIndex: f.index(t, "eth0"),
		}
		nl := f.NS.Netlink()
		if err := nl.LinkAdd(link); err != nil {
			t.Fatalf("%s: add %s: %v", name, link.Name, err)
		}
		up, err := nl.LinkByName(link.Name)
		if err != nil {
			t.Fatal(err)
		}
		// flannel gives the device the subnet's first address; the second is the pod.
		for _, addr := range []netip.Addr{subnet.Addr(), subnet.Addr().Next().Next()} {
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Flags: unix.IFA_F_NODAD}
			if err := nl.AddrAdd(up, a); err != nil {
				t.Fatalf("%s: add %s: %v", name, addr, err)
			}
		}
		if err := nl.LinkSetUp(up); err != nil {
			t.Fatal(err)
		}
		f.links = append(f.links, up)
		macs = append(macs, up.Attrs().HardwareAddr.String())
	}
	c.CreateNode(t, name, f.Underlay4, NodeOptions{
		PodCIDRs:    []string{f.V4.String(), f.V6.String()},
		Annotations: FlannelAnnotations(f.Underlay4, f.Underlay6, macs[0], macs[1]),
	})
	return f
}

func (f *FlannelNode) index(t *testing.T, name string) int {
	t.Helper()
	l, err := f.NS.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

// Endpoint is its pod's.
func (f *FlannelNode) Endpoint(family int) probe.Endpoint {
	subnet := f.V4
	if family == 6 {
		subnet = f.V6
	}
	return probe.Endpoint{Name: f.Object, NS: f.NS, Addr: subnet.Addr().Next().Next()}
}

// Learn does what flannel does when it sees a Node object with its annotations: a neighbour entry, a
// forwarding entry and a route for each family (vxlan backend of flannel v0.28).
func (f *FlannelNode) Learn(obj *corev1.Node) error {
	said := obj.Annotations
	if said[AnnotationPrefix+"kube-subnet-manager"] != "true" ||
		said[AnnotationPrefix+"backend-type"] != "vxlan" {
		return fmt.Errorf("flannel ignores a node with annotations %v", said)
	}
	seen := map[int]bool{}
	for _, cidr := range obj.Spec.PodCIDRs {
		subnet, err := netip.ParsePrefix(cidr)
		if err != nil {
			return err
		}
		i, addr, data := 0, "public-ip", "backend-data"
		if subnet.Addr().Is6() {
			i, addr, data = 1, "public-ipv6", "backend-v6-data"
		}
		if seen[i] {
			continue
		}
		seen[i] = true
		if err := f.program(f.links[i], subnet, said[AnnotationPrefix+addr], said[AnnotationPrefix+data]); err != nil {
			return fmt.Errorf("%s: %s: %w", obj.Name, cidr, err)
		}
	}
	return nil
}

func (f *FlannelNode) program(link netlink.Link, subnet netip.Prefix, public, data string) error {
	vtep, err := netip.ParseAddr(public)
	if err != nil {
		return err
	}
	var said vxlanData
	if err := json.Unmarshal([]byte(data), &said); err != nil {
		return fmt.Errorf("backend data %q: %w", data, err)
	}
	mac, err := net.ParseMAC(said.VtepMAC)
	if err != nil {
		return err
	}
	nl, index := f.NS.Netlink(), link.Attrs().Index
	family := unix.AF_INET
	if subnet.Addr().Is6() {
		family = unix.AF_INET6
	}
	if err := nl.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: family, State: netlink.NUD_PERMANENT, Type: unix.RTN_UNICAST,
		IP: subnet.Addr().AsSlice(), HardwareAddr: mac,
	}); err != nil {
		return fmt.Errorf("neighbour: %w", err)
	}
	if err := nl.NeighSet(&netlink.Neigh{
		LinkIndex: index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF,
		IP: vtep.AsSlice(), HardwareAddr: mac,
	}); err != nil {
		return fmt.Errorf("forwarding entry: %w", err)
	}
	src := f.Endpoint(4).Addr
	if family == unix.AF_INET6 {
		src = f.Endpoint(6).Addr
	}
	route := &netlink.Route{LinkIndex: index, Dst: ipNet(subnet), Gw: subnet.Addr().AsSlice(),
		Flags: int(netlink.FLAG_ONLINK)}
	if !f.bridged {
		route.Src = src.AsSlice()
	}
	if err := nl.RouteReplace(route); err != nil {
		return fmt.Errorf("route: %w", err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
