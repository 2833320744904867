package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"weft/cmd/internal/control"
	"weft/test/await"
	"weft/test/fakekube"
)

const (
	apiAddr = "192.0.2.1:6443"
	// prefixOf is what flannel's annotations begin with.
	prefixOf = "flannel.alpha.coreos.com/"
)

// kubernetes is a fake API server that answers at apiAddr until stop.
type kubernetes struct {
	*fakekube.Server
	stop func()
}

// podCIDR returns a change that assigns podCIDRs to a Node.
func podCIDR(cidrs ...string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = cidrs[0], cidrs }
}

// condition returns the Node's condition of that kind.
func (k *kubernetes) condition(name string, kind corev1.NodeConditionType) (corev1.NodeCondition, error) {
	for _, c := range k.Node(name).Status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return corev1.NodeCondition{}, errors.New(fmt.Sprint("no condition ", kind))
}

// cluster is two hosts as nodes of a Kubernetes cluster, whose API server runs on a.
func cluster(t *testing.T, netconf string) (a, b *host, api *kubernetes) {
	t.Helper()
	a, b = wired(t)
	api = &kubernetes{Server: fakekube.New(t)}
	for pod, node := range map[string]string{"weft-b": "node-b", "weft-b2": "node-b", "weft-c": "node-c"} {
		api.PutPod("kube-flannel", pod, node)
	}
	for i, h := range []*host{a, b} {
		h.args = append(h.args, "--node-id=", "--kube-subnet-mgr", "--kube-api-url=http://"+apiAddr, "--net-config-path", h.netconf())
		h.env = []string{"NODE_NAME=node-" + h.name}
		h.write(t, netconf)
		api.Change("node-"+h.name, podCIDR(fmt.Sprintf("10.42.%d.0/24", i+1)))
	}
	listen(t, a, api)
	return a, b, api
}

func (h *host) netconf() string { return h.dir + "/net-conf.json" }

// write replaces the network configuration.
func (h *host) write(t *testing.T, netconf string) {
	t.Helper()
	if err := os.WriteFile(h.netconf(), []byte(netconf), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listen has api answer on a.
func listen(t *testing.T, a *host, api *kubernetes) {
	t.Helper()
	var l net.Listener
	if err := a.ns.Do(func() (err error) { l, err = net.Listen("tcp", apiAddr); return err }); err != nil {
		t.Fatal(err)
	}
	api.stop = api.Serve(l)
}

// says waits until h is not ready, and its reasons contain each of want.
func (h *host) says(t *testing.T, want ...string) {
	t.Helper()
	await.OK(t, h.name+" says why it is not ready", func() error {
		s, err := h.status(t)
		for _, w := range want {
			if err == nil && (s.Ready || !strings.Contains(fmt.Sprint(s.NotReady), w)) {
				err = fmt.Errorf("%q is not in %q", w, s.NotReady)
			}
		}
		return err
	})
}

const udpConf = `{"Network":"10.42.0.0/16","SubnetLen":26,"Backend":{"Type":"udp"}}`

func TestTwoNodesOfAClusterTalk(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	a.start(t)
	b.start(t, "--ip-masq")
	sa := a.awaitReady(t)
	b.awaitReady(t)
	a.reaches(t, b)
	b.reaches(t, a)

	if sa.NodeID != "node-a" || sa.Lease == nil || !sa.Lease.Held || sa.Lease.Subnet != netip.MustParsePrefix("10.42.1.0/24") ||
		sa.Store.Kind != control.KindKubernetes || !sa.Store.Connected || fmt.Sprint(sa.Store.Endpoints) != "[http://"+apiAddr+"]" || sa.Store.Prefix != "flannel.alpha.coreos.com" {
		t.Errorf("a's status: %+v", sa)
	}
	n := api.Node("node-a")
	for key, want := range map[string]string{"kube-subnet-manager": "true", "backend-type": "", "backend-data": " null", "public-ip": "192.0.2.1"} {
		if got, ok := n.Annotations[prefixOf+key]; !ok || got != want {
			t.Errorf("annotation %s is %q, want %q", key, got, want)
		}
	}
	await.OK(t, "the condition", func() error {
		c, err := api.condition("node-a", corev1.NodeNetworkUnavailable)
		if err == nil && (c.Status != corev1.ConditionFalse || c.Reason != "FlannelIsUp") {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	c := control.NewClient(b.socket())
	await.OK(t, "b shows its peer, which it does once all of it is in place", func() error {
		peers, err := c.Peers(t.Context())
		if err == nil && (len(peers.Peers) != 1 || peers.Peers[0].Name != "node-a" || !peers.Peers[0].Weft) {
			err = fmt.Errorf("%+v", peers)
		}
		return err
	})
	leases, err := c.Leases(t.Context())
	if err != nil || len(leases.Leases) != 2 || leases.Leases[0].Node != "node-a" || leases.Leases[1].Node != "node-b" || !leases.Leases[1].Own {
		t.Errorf("b's leases: %v %+v", err, leases)
	}
	if _, err := c.Release(t.Context(), control.ReleaseRequest{Subnet: "10.42.1.0/24", Force: true}); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "kubectl") {
		t.Errorf("release: %v", err)
	}
	if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("readyz: %v %d %s", err, code, body)
	}
	if code, body, err := b.get(t, "/metrics"); err != nil || code != http.StatusOK || !strings.Contains(body, "weft_peers 1\n") || !strings.Contains(body, `node="node-b"`) || !strings.Contains(body, "weft_store_up 1\n") {
		t.Errorf("metrics: %v %d", err, code)
	}
	if log := a.log.String(); strings.Count(log, "SubnetLen") != 1 {
		t.Errorf("that SubnetLen does not count is not said once")
	}
	a.write(t, `{"Network":"10.43.0.0/16","Backend":{"Type":"udp"}}`)
	await.OK(t, "a says that the file has changed", func() error {
		s, err := a.status(t)
		if err == nil && (!s.Config.Differs || !strings.Contains(fmt.Sprint(s.Config.Changes), "10.43.0.0/16")) {
			err = fmt.Errorf("%+v", s.Config)
		}
		return err
	})

	// A restart does not adopt a network in which the node's pods are not, nor a file with a fault. Once the file
	// is good, weftd adopts it by itself.
	for _, bad := range [][2]string{
		{`{"Network":"10.43.0.0/16","Backend":{"Type":"udp"}}`, "--renumber"}, {`{"Network":"10.42.0.0/16","Backend":{"Type":"vxlna"}}`, `did you mean "vxlan"?`},
	} {
		text, want := bad[0], bad[1]
		a.write(t, text)
		for range 2 {
			a.stop(t, syscall.SIGTERM)
			a.start(t)
			if s := a.awaitReady(t); !s.Config.LastGood || !strings.Contains(fmt.Sprint(s.Config.Faults), want) || s.Lease.Subnet != sa.Lease.Subnet {
				t.Errorf("after a restart with %q: %+v", text, s.Config)
			}
			a.reaches(t, b)
		}
	}
	a.write(t, `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Port":8290}}`)
	await.OK(t, "a takes the new file up", func() error {
		s, err := a.status(t)
		if err == nil && (!s.Ready || s.Config.Differs || s.Backend.Port != 8290) {
			err = fmt.Errorf("ready %v, %+v", s.Ready, s.Config)
		}
		return err
	})
}

func TestAPodCIDRIsWaitedFor(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	api.Change("node-b", func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil })
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	b.says(t, "node-b", "podCIDR")
	if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusServiceUnavailable || !strings.HasPrefix(body, "flanneld is not ready yet\n") || !strings.Contains(body, "podCIDR") {
		t.Errorf("readyz: %v %d %s", err, code, body)
	}
	api.Change("node-b", podCIDR("10.42.7.0/25"))
	b.awaitReady(t)
	a.reaches(t, b)
	b.reaches(t, a)
}

func TestAStartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	b.env = []string{"POD_NAMESPACE=kube-flannel", "POD_NAME=weft-b"} // who we are is not known from the environment
	api.stop()
	b.start(t)
	b.says(t, "API server: ")
	listen(t, a, api)
	a.start(t)
	a.awaitReady(t)
	b.awaitReady(t)
	a.reaches(t, b)
	before := b.kernel(t)

	if code := b.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit status %d", code)
	}
	api.stop()
	b.env = []string{"POD_NAMESPACE=kube-flannel", "POD_NAME=weft-b2"}
	b.start(t)
	await.OK(t, "b serves from its cache", func() error {
		s, err := b.status(t)
		if err == nil && (s.NodeID != "node-b" || !s.Ready || len(s.Notes) == 0 || !s.Cache.Used || s.Lease == nil || s.Lease.Held) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	a.reaches(t, b)
	b.reaches(t, a)
	if after := b.kernel(t); after != before {
		t.Errorf("kernel's state: %s, before %s", after, before)
	}
	listen(t, a, api)
	await.OK(t, "b's lease is confirmed", func() error {
		s, err := b.status(t)
		if err == nil && (!s.Ready || s.Lease == nil || !s.Lease.Held || !s.Cache.Used) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

// A host got another name, or another public address, while it was off.
func TestACacheOfAnotherNode(t *testing.T) {
	t.Parallel()
	_, b, api := cluster(t, udpConf)
	b.env = []string{"POD_NAMESPACE=kube-flannel", "POD_NAME=weft-b"}
	b.start(t)
	b.awaitReady(t)
	b.stop(t, syscall.SIGTERM)

	api.Change("node-c", podCIDR("10.42.3.0/24"))
	b.env = []string{"POD_NAMESPACE=kube-flannel", "POD_NAME=weft-c"}
	b.start(t)
	await.OK(t, "b is another", func() error {
		s, err := b.status(t)
		if err == nil && (!s.Ready || s.NodeID != "node-c" || s.Lease.Subnet != netip.MustParsePrefix("10.42.3.0/24")) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	b.stop(t, syscall.SIGTERM)
	b.env = []string{"NODE_NAME=node-b"} // whose cache is of node-c
	b.start(t)
	if s := b.awaitReady(t); s.Cache.Used || s.NodeID != "node-b" {
		t.Errorf("%+v", s)
	}
}

func TestNodePublicIP(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	link, err := b.ns.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("192.0.2.22/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.ns.Netlink().AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	api.Change("node-b", func(n *corev1.Node) { n.Annotations[prefixOf+"node-public-ip"] = "192.0.2.22" })
	a.start(t)
	b.start(t, "--public-ip=192.0.2.2")
	a.awaitReady(t)
	told := func(h *host, want string) {
		t.Helper()
		if s := h.awaitReady(t); s.Underlay.PublicIP != netip.MustParseAddr(want) {
			t.Errorf("%+v", s.Underlay)
		}
		await.OK(t, "the annotation", func() error {
			if got := api.Node("node-b").Annotations[prefixOf+"public-ip"]; got != want {
				return fmt.Errorf("public-ip %q, want %s", got, want)
			}
			return nil
		})
	}
	told(b, "192.0.2.22")
	a.reaches(t, b)
	b.stop(t, syscall.SIGTERM)
	api.Change("node-b", func(n *corev1.Node) { delete(n.Annotations, prefixOf+"node-public-ip") })
	b.start(t, "--public-ip=192.0.2.2") // with its cache, which says what is outdated by now
	await.OK(t, "b follows", func() error {
		s, err := b.status(t)
		if err == nil && s.Underlay.PublicIP != netip.MustParseAddr("192.0.2.2") {
			err = fmt.Errorf("%+v", s.Underlay)
		}
		return err
	})
	told(b, "192.0.2.2")
	a.reaches(t, b)
}

func TestEveryBackendTakesItsSubnetFromTheCluster(t *testing.T) {
	t.Parallel()
	const extension = `"SubnetAddCommand":"true","PreStartupCommand":"echo of $SUBNET"`
	for backend, want := range map[string]string{
		`"Type":"udp"`: "", `"Type":"alloc"`: "", `"Type":"host-gw"`: "host-gw", `"Type":"vxlan"`: "vxlan",
		`"Type":"vxlan","Userspace":"always"`: "vxlan", `"Type":"wireguard","Userspace":"always"`: "wireguard", `"Type":"extension",` + extension: "extension", `"Type":"auto"`: "vxlan",
	} {
		t.Run(backend, func(t *testing.T) {
			a, b, api := cluster(t, `{"Network":"10.42.0.0/16","Backend":{`+backend+`}}`)
			a.start(t)
			b.start(t)
			a.awaitReady(t)
			b.awaitReady(t)
			if got, ok := api.Node("node-a").Annotations[prefixOf+"backend-type"]; !ok || got != want {
				t.Errorf("backend-type %q, want %q", got, want)
			}
			if !strings.Contains(backend, "alloc") {
				await.OK(t, "a's peer", func() error {
					s, err := a.status(t)
					if err == nil && (s.Peers != 1 || strings.Contains(fmt.Sprint(s.Backend.Notes), "used")) {
						err = fmt.Errorf("%+v", s)
					}
					return err
				})
			}
			if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), "FLANNEL_SUBNET=10.42.2.1/24\n") {
				t.Errorf("b's subnet file: %v\n%s", err, text)
			}
		})
	}
}

func TestStartsInAClusterThatCannotSucceed(t *testing.T) {
	t.Parallel()
	_, b, _ := cluster(t, udpConf)
	for _, tt := range []struct {
		name, args string
		env        []string
		status     int
		want       []string
	}{
		{"no network", "--net-config-path=/nonexistent/net-conf.json", b.env, 1, []string{"--net-config-path", "/nonexistent/net-conf.json", "ConfigMap"}},
		{"a bad network", "--net-config-path=/proc/self/cmdline", b.env, 1, []string{"/proc/self/cmdline", "network config"}},
		{"no name", "", nil, 1, []string{"NODE_NAME", "POD_NAMESPACE"}},
		{"no kubeconfig", "--kubeconfig-file=/nonexistent", b.env, 1, []string{"--kubeconfig-file", "/nonexistent"}},
		{"no pod", "--kube-api-url=", b.env, 1, []string{"--kubeconfig-file", "--kube-api-url"}},
		{"a bad prefix", "--kube-annotation-prefix=a/b/c", b.env, 1, []string{"--kube-annotation-prefix"}},
		{"a bad identity", "--node-id=a/b", b.env, 1, []string{"node id"}},
		{"two sources", "--embedded-etcd", b.env, 2, []string{"--kube-subnet-mgr", "--embedded-etcd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for status, extra := range map[int][]string{tt.status: nil, -1: {"--check"}} {
				cmd := b.command(append(append(strings.Fields(tt.args), "--control-socket=", "--healthz-port=0"), extra...)...)
				cmd.Env = append(append(os.Environ(), asWeftd+"=1"), tt.env...)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = b.ns.Run(cmd) // the status is what is asked for
				if got := cmd.ProcessState.ExitCode(); got != status && (status >= 0 || got != 1) {
					t.Errorf("%v: status %d, want %d\n%s", extra, got, tt.status, out.String())
				}
				for _, w := range tt.want {
					if !strings.Contains(out.String(), w) {
						t.Errorf("%v: %q is not in:\n%s", extra, w, out.String())
					}
				}
			}
		})
	}
}

// flannel's own manifests call the program flanneld. --check --offline asks nobody.
func TestItIsCalledFlanneldToo(t *testing.T) {
	t.Parallel()
	_, b, api := cluster(t, udpConf)
	api.stop()
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	flanneld := filepath.Join(t.TempDir(), "flanneld")
	if err := os.Symlink(self, flanneld); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(flanneld, append(b.args, "--check", "--offline")...)
	cmd.Env = append(os.Environ(), asWeftd+"=1", "NODE_NAME=node-b", "EVENT_QUEUE_DEPTH=5000", "FLANNELD_ETCD_PREFIX=/x")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := b.ns.Run(cmd); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"no faults", "node: node-b (env NODE_NAME)", "API server: http://" + apiAddr, "EVENT_QUEUE_DEPTH", "network-config, ok: 10.42.0.0/16, backend udp, from --net-config-path " + b.netconf(),
		"SubnetLen", "--etcd-prefix (FLANNELD_ETCD_PREFIX) has no effect with --kube-subnet-mgr", "eth0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if _, err := os.Stat(b.dir + "/cache"); !os.IsNotExist(err) {
		t.Errorf("the check made the cache directory: %v", err)
	}
}

// An API server inside the overlay's network, known by its own address and not by a Service's.
func TestAnOverlayThatCutsTheAPIServerOff(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	lo, err := a.ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(farStore + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ns.Netlink().AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	if err := a.ns.Do(func() (err error) { l, err = net.Listen("tcp", farStore+":6443"); return err }); err != nil {
		t.Fatal(err)
	}
	far := &http.Server{Handler: api}
	t.Cleanup(func() { _ = far.Close() })
	go func() { _ = far.Serve(l) }() // ends with the test
	b.route(t, b.ns.Netlink().RouteAdd, "0.0.0.0/0")
	b.start(t, "--kube-api-url=http://"+farStore+":6443")
	b.says(t, "config: "+strings.ReplaceAll(cutOff, "the store", "the API server"))
	b.route(t, b.ns.Netlink().RouteAdd, farStore+"/32")
	b.awaitReady(t)
}

func TestBothFamiliesFromACluster(t *testing.T) {
	t.Parallel()
	a, b, api := dualCluster(t, `{"Type":"udp"}`)
	s := a.awaitReady(t)
	b.awaitReady(t)
	if s.Lease.Subnet != netip.MustParsePrefix("10.42.1.0/24") || s.Lease.IPv6Subnet != netip.MustParsePrefix("fd00:42:0:1::/64") {
		t.Errorf("%+v", s.Lease)
	}
	if text, err := os.ReadFile(b.file()); err != nil || !strings.Contains(string(text), "FLANNEL_SUBNET=10.42.2.1/24\n") || !strings.Contains(string(text), "FLANNEL_IPV6_SUBNET=fd00:42:0:2::1/64\n") {
		t.Errorf("b's subnet file: %v\n%s", err, text)
	}
	if got := api.Node("node-b").Annotations[prefixOf+"public-ipv6"]; got != "2001:db8::2" {
		t.Errorf("public-ipv6 %q", got)
	}
	a.reaches(t, b)
}

// Nodes that encrypt publish what flannel's do, reach each other in both families, and keep their keys over a restart.
func TestBothFamiliesEncryptedFromACluster(t *testing.T) {
	t.Parallel()
	a, b, api := dualCluster(t, `{"Type":"wireguard","Userspace":"always"}`)
	a.awaitReady(t)
	b.awaitReady(t)
	published := func() (all string) {
		t.Helper()
		await.OK(t, "the annotations", func() error {
			all = ""
			for _, h := range []*host{a, b} {
				for _, key := range []string{"backend-type", "public-ip", "backend-data", "public-ipv6", "backend-v6-data"} {
					all += fmt.Sprintf("%s %s=%q\n", h.name, key, api.Node("node-" + h.name).Annotations[prefixOf+key])
				}
			}
			if !encryptedAnnotations.MatchString(all) {
				return errors.New(all)
			}
			return nil
		})
		return all
	}
	before := published()
	if m := encryptedAnnotations.FindStringSubmatch(before); m[1] != m[2] || m[3] != m[4] || m[1] == m[3] {
		t.Errorf("not one key for each node:\n%s", before)
	}
	a.reaches(t, b)
	b.reaches(t, a)
	a.reachesAt(t, b, netip.MustParseAddr("fd00:42:0:1::"), netip.MustParseAddr("fd00:42:0:2::"))
	c := control.NewClient(a.socket())
	await.OK(t, "a session in each family", func() error {
		peers, err := c.Peers(t.Context())
		if err != nil || len(peers.Peers) != 1 || len(peers.Peers[0].Encryption) != 2 || peers.Peers[0].Encryption[0].Handshake.IsZero() || peers.Peers[0].Encryption[1].Handshake.IsZero() {
			return fmt.Errorf("%w: %+v", errors.Join(err, errors.New("want two")), peers)
		}
		return nil
	})
	b.stop(t, syscall.SIGTERM)
	b.start(t)
	b.awaitReady(t)
	b.reaches(t, a)
	if after := published(); after != before {
		t.Errorf("after a restart\n%s\nbefore\n%s", after, before)
	}
}

// encryptedAnnotations are flannel's, which begin each object with a blank.
var encryptedAnnotations = regexp.MustCompile(`^a backend-type="wireguard"
a public-ip="192\.0\.2\.1"
a backend-data=" \{\\"PublicKey\\":\\"([A-Za-z0-9+/]{43}=)\\",\\"Port\\":51820\}"
a public-ipv6="2001:db8::1"
a backend-v6-data=" \{\\"PublicKey\\":\\"([A-Za-z0-9+/]{43}=)\\",\\"Port\\":51821\}"
b backend-type="wireguard"
b public-ip="192\.0\.2\.2"
b backend-data=" \{\\"PublicKey\\":\\"([A-Za-z0-9+/]{43}=)\\",\\"Port\\":51820\}"
b public-ipv6="2001:db8::2"
b backend-v6-data=" \{\\"PublicKey\\":\\"([A-Za-z0-9+/]{43}=)\\",\\"Port\\":51821\}"
$`)

// dualCluster is a cluster whose nodes have both families, and run.
func dualCluster(t *testing.T, backend string) (a, b *host, api *kubernetes) {
	t.Helper()
	a, b, api = cluster(t, `{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:42::/48","Backend":`+backend+`}`)
	for i, h := range []*host{a, b} {
		link, err := h.ns.Netlink().LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		addr, err := netlink.ParseAddr(fmt.Sprintf("2001:db8::%d/64", i+1))
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = syscall.IFA_F_NODAD
		if err := h.ns.Netlink().AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
		api.Change("node-"+h.name, podCIDR(fmt.Sprintf("fd00:42:0:%d::/64", i+1), fmt.Sprintf("10.42.%d.0/24", i+1)))
		h.start(t)
	}
	return a, b, api
}

// A first start whose backend does not come up waits, and says why; once the file is good it goes on by
// itself.
func TestAFirstStartWaitsForAConfigThatCanBeServed(t *testing.T) {
	t.Parallel()
	a, b, _ := cluster(t, `{"Network":"10.42.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"nosuch"}}`)
	a.write(t, udpConf)
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	b.says(t, "config", "backend", "nosuch")
	b.write(t, udpConf)
	b.awaitReady(t)
	b.reaches(t, a)

	// The same holds for a last good configuration that does not work any more: another one is tried in its place.
	script := filepath.Join(b.dir, "prestart")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho key\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	extension := fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"extension","PreStartupCommand":%q}}`, script)
	b.write(t, extension)
	b.stop(t, syscall.SIGTERM)
	b.start(t)
	if s := b.awaitReady(t); s.Backend.Type != "extension" || s.Config.Differs {
		t.Errorf("%+v %+v", s.Backend, s.Config)
	}
	await.OK(t, "it is cached as the last good one", func() error { // soon after the node is ready
		text, err := os.ReadFile(filepath.Join(b.dir, "cache", "lease.json"))
		if err == nil && !strings.Contains(string(text), "extension") {
			err = fmt.Errorf("not in %s", text)
		}
		return err
	})
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	b.stop(t, syscall.SIGTERM)
	b.start(t)
	b.says(t, "config", "prestart")
	b.write(t, udpConf)
	if s := b.awaitReady(t); s.Backend.Type != "udp" || s.Config.Differs {
		t.Errorf("%+v %+v", s.Backend, s.Config)
	}
	b.reaches(t, a)
}
