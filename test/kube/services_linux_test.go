package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"weft/test/lab"
)

// servicePort is a Service's, and backendPort that of the pods behind it.
const (
	servicePort = 80
	backendPort = 8080
)

// A Service reaches pods that are attached directly by the rules that kube-proxy makes of it: a pod on
// another node, one on the client's, and the client itself, in both families, over TCP and UDP, with each of
// the two kinds of rules. What answers is the Service.
func TestServicesOfDirectPods(t *testing.T) {
	c := Start(t, Options{})
	var nodes []*Node
	for _, name := range []string{"a", "b"} {
		n := c.AddNode(t, name, NodeOptions{NetworkConfig: DualStack(`{"Type":"udp"}`),
			Args: []string{"--ip-masq"}})
		n.Direct = true
		nodes = append(nodes, n)
	}
	client, sibling, remote := nodes[0].AddPod(t), nodes[0].AddPod(t), nodes[1].AddPod(t)
	AllReach(t, []*Pod{client, sibling, remote}, 4, 6)
	services := map[string][]netip.AddrPort{}
	backends := []struct {
		name string
		pod  *Pod
	}{{"remote", remote}, {"sibling", sibling}, {"itself", client}}
	for _, b := range backends {
		services[b.name] = c.service(t, b.name, b.pod)
		for _, family := range []int{4, 6} {
			b.pod.echoes(t, family)
		}
	}
	for _, mode := range []string{"nftables", "iptables"} {
		t.Run(mode, func(t *testing.T) {
			for _, n := range nodes {
				n.proxy(t, mode)
			}
			for _, b := range backends {
				for _, at := range services[b.name] {
					t.Run(fmt.Sprintf("%s by %s", b.name, at.Addr()), func(t *testing.T) {
						client.asks(t, "tcp", at)
						client.asks(t, "udp", at)
					})
				}
			}
			for _, p := range []*Pod{sibling, remote} { // without a Service the way is the short one, also afterwards
				for _, family := range []int{4, 6} {
					Transfer(t, client.Endpoint(family), p.Endpoint(family))
				}
			}
		})
	}
}

// service makes a Service of both families with that pod behind it, and returns its addresses.
func (c *Cluster) service(t *testing.T, name string, p *Pod) (at []netip.AddrPort) {
	t.Helper()
	both, udp, tcp := corev1.IPFamilyPolicyRequireDualStack, corev1.ProtocolUDP, corev1.ProtocolTCP
	s, err := c.Admin.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{IPFamilyPolicy: &both, Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: tcp, Port: servicePort, TargetPort: intstr.FromInt32(backendPort)},
			{Name: "udp", Protocol: udp, Port: servicePort, TargetPort: intstr.FromInt32(backendPort)},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ports := []discoveryv1.EndpointPort{{Name: new("tcp"), Protocol: &tcp, Port: new(int32(backendPort))},
		{Name: new("udp"), Protocol: &udp, Port: new(int32(backendPort))}}
	for kind, addr := range map[discoveryv1.AddressType]netip.Addr{discoveryv1.AddressTypeIPv4: p.V4,
		discoveryv1.AddressTypeIPv6: p.V6} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-" + strings.ToLower(string(kind)),
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: kind, Ports: ports, Endpoints: []discoveryv1.Endpoint{
				{Addresses: []string{addr.String()}, NodeName: &p.Node.Object}},
		}
		if _, err := c.Admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(t.Context(), slice,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, ip := range s.Spec.ClusterIPs {
		at = append(at, netip.AddrPortFrom(netip.MustParseAddr(ip), servicePort))
	}
	if len(at) != 2 {
		t.Fatalf("Service %s has the addresses %v, want one of each family", name, at)
	}
	return at
}

// proxyHealth is where kube-proxy says on its node's loopback that its rules are in place.
const proxyHealth = "127.0.0.1:10256"

// proxy runs kube-proxy on the node until the test ends, and returns when its rules are in place.
func (n *Node) proxy(t *testing.T, mode string) {
	t.Helper()
	program, err := n.cluster.program("kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(n.Dir, "kube-proxy.kubeconfig")
	if err := writeKubeconfig(kubeconfig, n.cluster.adminConfig); err != nil {
		t.Fatal(err)
	}
	common := []string{"--kubeconfig=" + kubeconfig, "--hostname-override=" + n.Object, "--proxy-mode=" + mode,
		"--cluster-cidr=" + Network4 + "," + Network6}
	d := lab.NewDaemon(n.Host, "kube-proxy", filepath.Join(n.Dir, "kube-proxy-"+mode+".log"), program,
		append(common,
			"--healthz-bind-address="+proxyHealth, "--metrics-bind-address=127.0.0.1:10249", "--oom-score-adj=0",
			// these are the machine's
			"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0",
			"--conntrack-tcp-timeout-close-wait=0",
		)...)
	p := &Process{d, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+proxyHealth+"/healthz", nil)
		if err != nil {
			return err
		}
		resp, err := n.HTTPClient().Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // for people
			return fmt.Errorf("kube-proxy: %s: %s", resp.Status, text)
		}
		return nil
	}}
	t.Cleanup(func() {
		// fails if it has not started
		_ = d.Kill()
		// the test's own context has ended
		out, err := n.Command(context.Background(), program, append(common, "--cleanup")...)
		if err != nil {
			t.Errorf("kube-proxy --cleanup: %v: %s", err, out)
		}
		if t.Failed() {
			t.Logf("the end of kube-proxy's log on %s:\n%s", n.Object, d.LogTail(20))
		}
	})
	if err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// echoes has the pod send back what comes to it, until the test ends.
func (p *Pod) echoes(t *testing.T, family int) {
	t.Helper()
	at := netip.AddrPortFrom(p.Endpoint(family).Addr, backendPort).String()
	var l net.Listener
	var u net.PacketConn
	if err := p.NS.Do(func() (err error) {
		if l, err = net.Listen("tcp", at); err == nil {
			u, err = net.ListenPacket("udp", at)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), u.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(c, c) // the other end says what did not come back
				_ = c.Close()
			}()
		}
	}()
	go func() { // ends with the socket
		buf := make([]byte, 64<<10)
		for {
			k, from, err := u.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(buf[:k], from) // as above
		}
	}()
}

// asks sends something to an echo from a connected socket, which takes answers from nobody else, until it is
// back: rules come a moment after kube-proxy says that it is healthy.
func (p *Pod) asks(t *testing.T, network string, at netip.AddrPort) {
	t.Helper()
	Until(t, network+" to "+at.String(), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		c, err := p.NS.Dial(ctx, network, at.String())
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		for _, size := range []int{1, 1000, 5000} { // a datagram of the last is in fragments
			want := bytes.Repeat([]byte{0xa5, byte(size), 0x3c}, size)[:size]
			if _, err := c.Write(want); err != nil {
				return err
			}
			got := make([]byte, size)
			if _, err := io.ReadFull(c, got); err != nil {
				return fmt.Errorf("%d bytes: %w", size, err)
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("%d bytes came back changed", size)
			}
		}
		return nil
	})
}
