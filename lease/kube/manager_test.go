package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/lease"
	"weft/lease/keeper"
	"weft/test/await"
	"weft/test/fakekube"
)

const dualConfig = `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/48","Backend":{"Type":"vxlan"}}`
const v4Config = `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`

// tester is a manager with the sets that it published.
type tester struct {
	*Manager
	t testing.TB

	mu   sync.Mutex
	sets []lease.Set
}

func newTester(t testing.TB, s *fakekube.Server, c Config, change func(*Options)) *tester {
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	tt := &tester{t: t}
	o := Options{Options: keeper.Options{
		Node: "a", RawConfig: []byte(v4Config), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Local:   keeper.Local{Attrs: attrs("192.0.2.1", `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)},
		Publish: tt.publish,
	}}
	if change != nil {
		change(&o)
	}
	if o.Config, err = lease.ParseNetworkConfig(o.RawConfig); err != nil {
		t.Fatal(err)
	}
	o.Backend = backendOf(o.Config.BackendType)
	if tt.Manager, err = NewManager(client, o); err != nil {
		t.Fatal(err)
	}
	tt.life.pace.retryFirst, tt.life.pace.retryMost = 10*time.Millisecond, 50*time.Millisecond
	return tt
}

func attrs(addr, data string) lease.Attrs {
	return lease.Attrs{
		PublicIP: netip.MustParseAddr(addr), BackendType: "vxlan", BackendData: json.RawMessage(data),
		Weft: &lease.Weft{Recv: []string{"gso"}, MTU: 1450},
	}
}

func (tt *tester) publish(s lease.Set) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	tt.sets = append(tt.sets, s)
}

func (tt *tester) last() lease.Set {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	if len(tt.sets) == 0 {
		return lease.Set{}
	}
	return tt.sets[len(tt.sets)-1]
}

func (tt *tester) count() int {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return len(tt.sets)
}

// wantPeers waits for the last set to have these, each "name subnets address".
func (tt *tester) wantPeers(want ...string) {
	tt.t.Helper()
	await.NoDiff(tt.t, func() string {
		var got []string
		for _, p := range tt.last().Peers {
			got = append(got, fmt.Sprintf("%s %s %s", p.Kube.Name, p.Subnets, p.Address()))
		}
		return cmp.Diff(want, got)
	})
}

func (tt *tester) wantState(state lease.State, cause string) {
	tt.t.Helper()
	await.NoDiff(tt.t, func() string {
		st := tt.Status()
		if got := text(st.Err); st.State != state || !strings.Contains(got, cause) || cause == "" && got != "" {
			return fmt.Sprintf("state %s (%s), want %s (%s)", st.State, got, state, cause)
		}
		return ""
	})
}

// plain is a Node as the kubelet and the controller manager make it.
func plain(name string, cidrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0"}}}
	n.Spec.PodCIDRs = cidrs
	if len(cidrs) > 0 {
		n.Spec.PodCIDR = cidrs[0]
	}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example/image:1"}, SizeBytes: 1 << 20}}
	return n
}

// peer is a Node that a flannel runs on.
func peer(name, cidr, addr string) *corev1.Node {
	n := plain(name, cidr)
	const p = "flannel.alpha.coreos.com/"
	for key, value := range map[string]string{
		"kube-subnet-manager": "true", "backend-type": "vxlan", "public-ip": addr,
		"backend-data": `{"VNI":1,"VtepMAC":"02:00:00:00:00:09"}`,
	} {
		n.Annotations[p+key] = value
	}
	return n
}

func TestJoin(t *testing.T) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			s := fakekube.New(t)
			s.Streams(streams)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
			s.Put(plain("c", "10.244.3.0/24")) // nobody runs there
			tt := newTester(t, s, configOf(s, "a"), nil)
			during(t, tt.Run)
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
			tt.wantState(lease.Held, "")
			if own := tt.last().Own; own.String() != "10.244.1.0/24" || own.Node() != "a" {
				t.Errorf("own %v of %q", own, own.Node())
			}
			got := s.Node("a").Annotations
			want := map[string]string{
				"node.alpha.kubernetes.io/ttl":                 "0",
				"flannel.alpha.coreos.com/kube-subnet-manager": "true",
				"flannel.alpha.coreos.com/backend-type":        "vxlan",
				"flannel.alpha.coreos.com/backend-data":        ` {"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`,
				"flannel.alpha.coreos.com/public-ip":           "192.0.2.1",
				"flannel.alpha.coreos.com/weft":                `{"Node":"a","Recv":["gso"],"MTU":1450,"Of":"f6d3ad29abd951e3"}`,
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if n := len(s.Patches()); n != 1 {
				t.Errorf("%d patches: %q", n, s.Patches())
			}
			st := tt.Status()
			if st.StoreErr != nil || st.StoreSeen.IsZero() || st.Revision == 0 ||
				st.ClusterID != string(s.Node("a").UID) || st.Peers != 1 {
				t.Errorf("status %+v", st)
			}
			if !strings.HasPrefix(s.Agent(), "weftd/") {
				t.Errorf("user agent %q", s.Agent())
			}
			if len(s.Node("a").Status.Conditions) != 0 {
				t.Error("the condition was touched, and the flag is off")
			}
		})
	}
}

func TestEveryChangeTakesEffect(t *testing.T) {
	t.Parallel()
	const prefix = "flannel.alpha.coreos.com/"
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24", "fd00:244:0:1::/64"))
	tt := newTester(t, s, configOf(s, "a"), func(o *Options) {
		o.RawConfig = []byte(dualConfig)
		o.Local.Attrs.PublicIPv6 = netip.MustParseAddr("2001:db8::1")
		o.Local.Attrs.BackendV6Data = json.RawMessage(`{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`)
	})
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	if got := s.Node("a").Annotations[prefix+"public-ipv6"]; got != "2001:db8::1" {
		t.Errorf("public-ipv6 %q", got)
	}

	dual := peer("b", "10.244.2.0/24", "192.0.2.2")
	dual.Spec.PodCIDRs = append(dual.Spec.PodCIDRs, "fd00:244:0:2::/64")
	dual.Annotations[prefix+"public-ipv6"] = "2001:db8::2"
	dual.Annotations[prefix+"backend-v6-data"] = `{"VNI":1,"VtepMAC":"02:00:00:00:00:19"}`
	s.Put(dual)
	s.Put(peer("c", "10.244.3.0/25", "192.0.2.3")) // of another length, and of IPv4 alone
	tt.wantPeers("b 10.244.2.0/24,fd00:244:0:2::/64 192.0.2.2", "c 10.244.3.0/25 192.0.2.3")

	// One family's change, of both kinds, and a changed podCIDR.
	s.Change("b", func(n *corev1.Node) { n.Annotations[prefix+"public-ipv6"] = "2001:db8::22" })
	await.NoDiff(t, func() string {
		if got := tt.last().Peers[0].PublicIPv6; got != netip.MustParseAddr("2001:db8::22") {
			return "public-ipv6 is still " + got.String()
		}
		return ""
	})
	s.Change("b", func(n *corev1.Node) {
		n.Annotations[prefix+"backend-data"] = `{"VNI":1,"VtepMAC":"02:00:00:00:00:77"}`
	})
	await.NoDiff(t, func() string {
		if got := string(tt.last().Peers[0].BackendData); !strings.Contains(got, "77") {
			return "backend-data is still " + got
		}
		return ""
	})
	s.Change("c", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.33.0/24"} })
	tt.wantPeers("b 10.244.2.0/24,fd00:244:0:2::/64 192.0.2.2", "c 10.244.33.0/24 192.0.2.3")

	// The mark removed, and put back; a Node deleted.
	s.Change("c", func(n *corev1.Node) { delete(n.Annotations, prefix+"kube-subnet-manager") })
	tt.wantPeers("b 10.244.2.0/24,fd00:244:0:2::/64 192.0.2.2")
	s.Change("c", func(n *corev1.Node) { n.Annotations[prefix+"kube-subnet-manager"] = "true" })
	tt.wantPeers("b 10.244.2.0/24,fd00:244:0:2::/64 192.0.2.2", "c 10.244.33.0/24 192.0.2.3")
	s.Remove("b")
	tt.wantPeers("c 10.244.33.0/24 192.0.2.3")
	if alarm := tt.last().Alarm; alarm != "" {
		t.Errorf("alarm %q", alarm)
	}
}

func TestHostileNodesCostOnlyThemselves(t *testing.T) {
	const prefix = "flannel.alpha.coreos.com/"
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	at := 50
	bad := func(name string, f func(*corev1.Node)) {
		n := peer(name, fmt.Sprintf("10.244.%d.0/24", at), fmt.Sprintf("192.0.2.%d", at))
		at++
		f(n)
		s.Put(n)
	}
	bad("h1", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = `{"VNI":` })
	bad("h2", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = "not an address" })
	bad("h3", func(n *corev1.Node) { n.Annotations[prefix+"weft"] = `{"Node":"\u0000"}` })
	bad("h4", func(n *corev1.Node) { n.Annotations[prefix+"weft"] = strings.Repeat("x", maxValue+1) })
	bad("h5", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.0.0/16"} })         // all of it
	bad("h6", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.2.128/25"} })       // inside a peer's
	bad("h7", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.2.0/24"} })         // a peer's
	bad("h8", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"192.168.0.0/24"} })        // outside
	bad("i1", func(n *corev1.Node) { n.Annotations[prefix+"weft"] = `{"Node":"a"}` })       // our identity
	bad("i2", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = "192.0.2.1" })     // our address
	bad("i3", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = "127.0.0.1" })     // nobody's
	bad("i4", func(n *corev1.Node) { delete(n.Annotations, prefix+"public-ip") })           // none
	bad("i5", func(n *corev1.Node) { n.Spec.PodCIDRs, n.Spec.PodCIDR = nil, "" })           // none yet
	bad("i6", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"1.2.3.4", "x", "y", ""} }) // garbage
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	bad("h9", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} }) // ours, which we have
	await.NoDiff(t, func() string {
		got := map[string]string{}
		for _, r := range tt.Status().Rejected {
			got[r.Key] = string(r.Reason)
			if r.Detail == "" || len(r.Detail) > 512 {
				t.Errorf("%s: detail of %d bytes", r.Key, len(r.Detail))
			}
		}
		return cmp.Diff(map[string]string{
			"h1": "bad_value", "h2": "bad_value", "h3": "bad_value", "h4": "bad_value",
			"h5": "overlaps_own", "h6": "overlaps_peer", "h7": "overlaps_peer", "h8": "outside_network",
			"h9": "overlaps_own",
			"i1": "our_address", "i2": "our_address", "i3": "bad_address", "i4": "bad_address",
			"i5": "no_common_family", "i6": "bad_value",
		}, got)
	})
	// One that turns to garbage is kept for a while: that takes nothing away.
	s.Change("b", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = "{" })
	await.NoDiff(t, func() string {
		if !strings.Contains(tt.Status().Alarm, "record") {
			return "alarm " + tt.Status().Alarm
		}
		return ""
	})
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	s.Change("b", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = "null" })
	await.NoDiff(t, func() string { return tt.Status().Alarm })
}

func TestNothingIsLeftRunning(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	before := runtime.NumGoroutine()
	for range 3 {
		tt := newTester(t, s, configOf(s, "a"), nil)
		stop := during(t, tt.Run)
		tt.wantState(lease.Held, "")
		stop()
		_ = tt.client.Close()
	}
	await.NoDiff(t, func() string {
		s.CutConnections()
		if n := runtime.NumGoroutine(); n > before {
			b := make([]byte, 1<<20)
			return fmt.Sprintf("%d goroutines, before %d\n%s", n, before, b[:runtime.Stack(b, true)])
		}
		return ""
	})
}

// configOf is that of a client of s whose node is name.
func configOf(s *fakekube.Server, name string) Config { return Config{APIURL: s.URL, NodeName: name} }

// during runs f beside the test, and ends it with it.
func during(t testing.TB, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("run: %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Error("run does not end")
			}
		})
	}
	t.Cleanup(stop)
	return stop
}
