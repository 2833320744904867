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
		h.args = append(h.args, "--node-id=", "--kube-subnet-mgr", "--kube-api-url=http://"+apiAddr,
			"--net-config-path", h.netconf())
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

	if sa.NodeID != "node-a" || sa.Lease == nil || !sa.Lease.Held ||
		sa.Lease.Subnet != netip.MustParsePrefix("10.42.1.0/24") ||
		sa.Store.Kind != control.KindKubernetes || !sa.Store.Connected ||
		fmt.Sprint(sa.Store.Endpoints) != "[http://"+apiAddr+"]" || sa.Store.Prefix != "flannel.alpha.coreos.com" {
		t.Errorf("a's status: %+v", sa)
	}
	n := api.Node("node-a")
	for key, want := range map[string]string{"kube-subnet-manager": "true", "backend-type": "",
		"backend-data": " null", "public-ip": "192.0.2.1"} {
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
	if err != nil || len(leases.Leases) != 2 || leases.Leases[0].Node != "node-a" ||
		leases.Leases[1].Node != "node-b" || !leases.Leases[1].Own {
		t.Errorf("b's leases: %v %+v", err, leases)
	}
	if _, err := c.Release(t.Context(), control.ReleaseRequest{Subnet: "10.42.1.0/24", Force: true}); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "kubectl") {
		t.Errorf("release: %v", err)
	}
	if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("readyz: %v %d %s", err, code, body)
	}
	if code, body, err := b.get(t, "/metrics"); err != nil || code != http.StatusOK ||
		!strings.Contains(body, "weft_peers 1\n") || !strings.Contains(body, `node="node-b"`) ||
		!strings.Contains(body, "weft_store_up 1\n") {
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

	// A restart does not adopt a network in which the node's pods are not, nor a file with a fault. Once the
	// file is good, weftd adopts it by itself.
	for _, bad := range [][2]string{
		{`{"Network":"10.43.0.0/16","Backend":{"Type":"udp"}}`, "--renumber"},
		{`{"Network":"10.42.0.0/16","Backend":{"Type":"vxlna"}}`, `did you mean "vxlan"?`},
	} {
		text, want := bad[0], bad[1]
		a.write(t, text)
		for range 2 {
			a.stop(t, syscall.SIGTERM)
			a.start(t)
			if s := a.awaitReady(t); !s.Config.LastGood || !strings.Contains(fmt.Sprint(s.Config.Faults), want) ||
				s.Lease.Subnet != sa.Lease.Subnet {
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

func TestAStartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	a, b, api := cluster(t, udpConf)
	// who we are is not known from the environment
	b.env = []string{"POD_NAMESPACE=kube-flannel", "POD_NAME=weft-b"}
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
		if err == nil && (s.NodeID != "node-b" || !s.Ready || len(s.Notes) == 0 || !s.Cache.Used ||
			s.Lease == nil || s.Lease.Held) {
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

func TestStartsInAClusterThatCannotSucceed(t *testing.T) {
	t.Parallel()
	_, b, _ := cluster(t, udpConf)
	for _, tt := range []struct {
		name, args string
		env        []string
		status     int
		want       []string
	}{
		{"no network", "--net-config-path=/nonexistent/net-conf.json", b.env, 1,
			[]string{"--net-config-path", "/nonexistent/net-conf.json", "ConfigMap"}},
		{"a bad network", "--net-config-path=/proc/self/cmdline", b.env, 1,
			[]string{"/proc/self/cmdline", "network config"}},
		{"no name", "", nil, 1, []string{"NODE_NAME", "POD_NAMESPACE"}},
		{"no kubeconfig", "--kubeconfig-file=/nonexistent", b.env, 1,
			[]string{"--kubeconfig-file", "/nonexistent"}},
		{"no pod", "--kube-api-url=", b.env, 1, []string{"--kubeconfig-file", "--kube-api-url"}},
		{"a bad prefix", "--kube-annotation-prefix=a/b/c", b.env, 1, []string{"--kube-annotation-prefix"}},
		{"a bad identity", "--node-id=a/b", b.env, 1, []string{"node id"}},
		{"two sources", "--embedded-etcd", b.env, 2, []string{"--kube-subnet-mgr", "--embedded-etcd"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for status, extra := range map[int][]string{tt.status: nil, -1: {"--check"}} {
				cmd := b.command(append(append(strings.Fields(tt.args), "--control-socket=", "--healthz-port=0"),
					extra...)...)
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
	cmd.Env = append(os.Environ(), asWeftd+"=1", "NODE_NAME=node-b", "EVENT_QUEUE_DEPTH=5000",
		"FLANNELD_ETCD_PREFIX=/x")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := b.ns.Run(cmd); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"no faults", "node: node-b (env NODE_NAME)", "API server: http://" + apiAddr,
		"EVENT_QUEUE_DEPTH", "network-config, ok: 10.42.0.0/16, backend udp, from --net-config-path " + b.netconf(),
		"SubnetLen", "--etcd-prefix (FLANNELD_ETCD_PREFIX) has no effect with --kube-subnet-mgr", "eth0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	if _, err := os.Stat(b.dir + "/cache"); !os.IsNotExist(err) {
		t.Errorf("the check made the cache directory: %v", err)
	}
}
