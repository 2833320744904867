package kube

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/test/lab/probe"
	"weft/test/traffic"
)

// flanneldTakes does to n's Node object what a flanneld does when it takes its lease there: it compares
// flannel's annotations, as texts, with what it would write, and if one differs it writes all of them. It
// removes none (pkg/subnet/kube of flannel v0.28, AcquireLease).
func (n *Node) flanneldTakes(t *testing.T, kind string, data map[string]string) {
	t.Helper()
	obj, err := n.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"kube-subnet-manager": "true", "backend-type": kind, "backend-data": "null",
		"public-ip": n.Underlay4.String()}
	maps.Copy(want, data)
	have, differs, patch := flannelAnnotations(obj), false, map[string]any{}
	for name, value := range want {
		differs, patch[AnnotationPrefix+name] = differs || have[name] != value, value
	}
	if differs {
		n.cluster.Annotate(t, n.Object, patch)
	}
}

// cleanup runs weft cleanup on n, which has no weftd any more.
func (n *Node) cleanup(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.Command(t.Context(), n.cluster.programs.weft,
		append([]string{"cleanup", "--control-socket=" + n.ControlSocket}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// Nodes leave weft for flannel again.
func TestBackToFlannel(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	t.Run("udp", func(t *testing.T) { udpGoesBack(t, c) })
	t.Run("vxlan", func(t *testing.T) { vxlanGoesBack(t, c) })
}

// udpGoesBack looks at what a node is sent that runs flannel's udp backend now: nothing but whole IPv4
// packets, one a datagram, with their checksums, though weft's annotation is still there.
func udpGoesBack(t *testing.T, c *Cluster) {
	a, b := c.AddNode(t, "ua", NodeOptions{}), c.AddNode(t, "ub", NodeOptions{})
	t.Cleanup(func() { a.leave(t) })
	pod, gone := a.AddPod(t), b.AddPod(t)
	AllReach(t, []*Pod{pod, gone}, 4)
	subnet := b.Subnets(t)[0]
	a.Peer(t, subnet, func(p Peer) error {
		if !p.Weft || len(p.Recv) == 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.cleanup(t)
	b.flanneldTakes(t, "", nil)
	a.Peer(t, subnet, func(p Peer) error {
		if p.Weft || len(p.Recv) > 0 {
			return fmt.Errorf("it is taken for a weft: %+v", p)
		}
		return nil
	})
	if obj, err := b.Get(t.Context()); err != nil || flannelAnnotations(obj)["weft"] == "" {
		t.Errorf("flannel removed weft's annotation: %v", err)
	}
	var sock net.PacketConn
	err := b.Do(func() (err error) {
		sock, err = net.ListenPacket("udp4", netip.AddrPortFrom(b.Underlay4, 8285).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	burst(t, pod, gone.V4)
	seen, buf := 0, make([]byte, 1<<16)
	for seen < 500 {
		if err := sock.SetReadDeadline(time.Now().Add(Patience)); err != nil {
			t.Fatal(err)
		}
		size, _, err := sock.ReadFrom(buf)
		if err != nil {
			t.Fatalf("after %d datagrams: %v", seen, err)
		}
		if err := plainUDP(buf[:size]); err != nil {
			t.Fatalf("datagram %d: %v", seen, err)
		}
		seen++
	}
}

// burst has a pod send many small datagrams at once, as packing is for, until the test ends.
func burst(t *testing.T, from *Pod, to netip.Addr) {
	t.Helper()
	var conn net.Conn
	err := from.NS.Do(func() (err error) {
		conn, err = net.Dial("udp4", netip.AddrPortFrom(to, 9).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for range 64 {
				_, _ = conn.Write([]byte(strings.Repeat("x", 60))) // a refusal of earlier ones may come back
			}
			pause := time.NewTimer(2 * time.Millisecond)
			<-pause.C
		}
	}()
	t.Cleanup(func() {
		stop()
		<-done
		_ = conn.Close()
	})
}

// plainUDP reports what is wrong with a datagram that should be one whole IPv4 packet with UDP and its
// checksum (RFC 791, RFC 768), or another of IPv4 of which only the length is looked at.
func plainUDP(b []byte) error {
	if len(b) < 20 || b[0]>>4 != 4 || int(binary.BigEndian.Uint16(b[2:])) != len(b) {
		return fmt.Errorf("%d bytes are not one IPv4 packet: % x", len(b), b[:min(len(b), 32)])
	}
	head := int(b[0]&15) * 4
	if b[9] != 17 || head+8 > len(b) || binary.BigEndian.Uint16(b[head+6:]) == 0 {
		return nil
	}
	sum := uint32(17) + uint32(len(b)-head)
	for i, part := range [][]byte{b[12:20], b[head:]} {
		for j := 0; j+1 < len(part); j += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[j:]))
		}
		if i == 1 && len(part)%2 == 1 {
			sum += uint32(part[len(part)-1]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	if sum != 0xffff {
		return fmt.Errorf("its checksum is not complete: %#x", sum)
	}
	return nil
}

// vxlanGoesBack is the documented way, with packets under way: weftd stops, a flanneld finds the devices
// and writes its annotations, weft cleanup --rules. Then a node that weft has never known is let in.
func vxlanGoesBack(t *testing.T, c *Cluster) {
	conf := `{"Network":"` + Network4 + `","EnableIPv6":true,"IPv6Network":"` + Network6 +
		`","EnableNFTables":true,"Backend":{"Type":"vxlan","Userspace":"never"}}`
	a, b := c.AddNode(t, "va", NodeOptions{NetworkConfig: conf}),
		c.AddNode(t, "vb", NodeOptions{NetworkConfig: conf})
	t.Cleanup(func() { a.leave(t) })
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4, 6)
	var flows []*traffic.Flow
	for _, family := range []int{4, 6} {
		flows = append(flows, traffic.Start(t, pods[0].Endpoint(family), pods[1].Endpoint(family), 500),
			traffic.Start(t, pods[1].Endpoint(family), pods[0].Endpoint(family), 500))
	}
	back := &FlannelNode{Node: b.Node, Object: b.Object, bridged: true}
	subnets := b.Subnets(t)
	back.V4, back.V6 = subnets[0], subnets[1]
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	data := map[string]string{"public-ipv6": b.Underlay6.String()}
	for _, d := range [][2]string{{"flannel.1", "backend-data"}, {"flannel-v6.1", "backend-v6-data"}} {
		l, err := b.NS.Netlink().LinkByName(d[0])
		if err != nil {
			t.Fatal(err)
		}
		back.links = append(back.links, l)
		data[d[1]] = fmt.Sprintf(`{"VNI":1,"VtepMAC":"%s"}`, l.Attrs().HardwareAddr)
	}
	b.flanneldTakes(t, "vxlan", data)
	a.Peer(t, back.V4, func(p Peer) error {
		if p.Weft {
			return errors.New("it is taken for a weft")
		}
		return nil
	})
	news := c.AddFlannelNode(t, "vnews", 99)
	for _, pair := range [][2]*FlannelNode{{back, news}, {news, back}} {
		obj, err := (&Node{Object: pair[1].Object, cluster: c}).Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := pair[0].Learn(obj); err != nil {
			t.Fatal(err)
		}
	}
	Unreached(t, news.Endpoint(4), pods[1].Endpoint(4)) // the rules of weft's
	said := b.cleanup(t, "--rules", "--wait", "--kubeconfig-file="+filepath.Join(b.Dir, "kubeconfig"),
		"--node-name="+b.Object)
	t.Log(said)
	if obj, err := b.Get(t.Context()); err != nil || flannelAnnotations(obj)["weft"] != "" ||
		flannelAnnotations(obj)["public-ip"] == "" || !strings.Contains(said, "annotation") {
		t.Errorf("annotations %v, %v", flannelAnnotations(obj), err)
	}
	for _, family := range []int{4, 6} {
		for _, p := range []probe.Endpoint{pods[1].Endpoint(family)} {
			Reach(t, news.Endpoint(family), p)
			Reach(t, p, news.Endpoint(family))
		}
	}
	for _, f := range flows {
		f.Lossless()
	}
	c.DeleteNode(t, b.Object)
	c.DeleteNode(t, news.Object)
}

// A Node that is deleted and made again may get another podCIDR. Its new pods have a network, its old ones
// what is left of theirs until they are deleted, and somebody is told to do that.
func TestAnotherPodCIDR(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	n, other := c.AddNode(t, "a", NodeOptions{}), c.AddNode(t, "b", NodeOptions{})
	old, far := n.AddPod(t), other.AddPod(t)
	AllReach(t, []*Pod{old, far}, 4)
	gateway := probe.Endpoint{Name: "the old gateway", NS: n.NS, Addr: n.Subnets(t)[0].Addr().Next()}
	flow := traffic.Start(t, old.Endpoint(4), gateway, 500)
	n.Delete(t)
	c.Register(t, n, NodeOptions{PodCIDRs: []string{"10.244.210.0/24"}})
	n.StatusIs(t, "takes its new podCIDR", func(s Status) error {
		if s.Lease == nil || s.Lease.Subnet.String() != "10.244.210.0/24" || !s.Ready ||
			!strings.Contains(strings.Join(s.Notes, "\n"), "cni0 "+gateway.Addr.String()) {
			return fmt.Errorf("ready %v %v, lease %+v, notes %q", s.Ready, s.NotReady, s.Lease, s.Notes)
		}
		return nil
	})
	fresh := n.AddPod(t)
	AllReach(t, []*Pod{fresh, far}, 4)
	Reach(t, fresh.Endpoint(4), old.Endpoint(4))
	n.saysEvent(t, "Warning", "FormerPodCIDR", "delete these pods")
	flow.Lossless()
	old.Remove(t)
	n.StatusIs(t, "has no former pods any more", func(s Status) error {
		if strings.Contains(strings.Join(s.Notes, "\n"), "cni0") {
			return fmt.Errorf("notes %q", s.Notes)
		}
		return nil
	})
	l, err := n.NS.Netlink().LinkByName("cni0")
	if err != nil {
		t.Fatal(err)
	}
	if have, err := n.NS.Netlink().AddrList(l, netlink.FAMILY_V4); err != nil || len(have) != 1 ||
		have[0].IPNet.String() != "10.244.210.1/24" {
		t.Errorf("cni0 has %v, %v", have, err)
	}
	AllReach(t, []*Pod{fresh, far, n.AddPod(t)}, 4)
	n.saysEvent(t, "Normal", "FlannelIsUp", "over after")
}

// saysEvent waits for an Event about n that kubectl describe node shows.
func (n *Node) saysEvent(t *testing.T, kind, reason, message string) {
	t.Helper()
	UntilWithin(t, 2*Patience, fmt.Sprintf("event %s %s", kind, reason), func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		of := fmt.Sprintf("involvedObject.kind=Node,involvedObject.name=%s", n.Object)
		all, err := n.cluster.Admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx,
			metav1.ListOptions{FieldSelector: of})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range all.Items {
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Message, message) &&
				e.Source.Component == "weftd" &&
				(e.InvolvedObject.UID == obj.UID || string(e.InvolvedObject.UID) == n.Object) {
				// kubectl describe shows Events with either
				t.Logf("%s %s x%d: %s", e.Type, e.Reason, e.Count, e.Message)
				return nil
			}
			said = append(said, e.Type+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events %q", said)
	})
}
