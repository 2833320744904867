package kube

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/lease/keeper"
	"weft/test/await"
	"weft/test/fakekube"
)

func TestOwnNode(t *testing.T) {
	s := fakekube.New(t)
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantState(lease.Acquiring, `"a"`)
	if err := tt.Status().Err; !errors.As(err, new(*noNodeError)) {
		t.Error(err)
	}
	s.Put(plain("a"))
	tt.wantState(lease.Acquiring, "--allocate-node-cidrs")
	s.Change("a", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.99.1.0/24"} })
	tt.wantState(lease.Acquiring, "10.99.1.0/24")
	if n := s.Patches(); len(n) != 0 {
		t.Errorf("written without a subnet: %q", n)
	}
	s.Change("a", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} })
	tt.wantState(lease.Held, "")

	// Another podCIDR, while we run.
	s.Change("a", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.7.0/24"} })
	await.NoDiff(t, func() string { return cmp.Diff("10.244.7.0/24", tt.last().Own.String()) })
	tt.wantState(lease.Held, "")

	// Our Node is deleted: we go on serving until another has our subnet.
	s.Remove("a")
	tt.wantState(lease.Expired, `"a"`)
	if own := tt.last().Own.String(); own != "10.244.7.0/24" {
		t.Errorf("own %s", own)
	}
	s.Put(plain("z", "10.244.7.0/25")) // nobody runs there yet
	tt.wantState(lease.Lost, `"z"`)
	await.NoDiff(t, func() string { return cmp.Diff(lease.Subnets{}.String(), tt.last().Own.String()) })
	s.Put(plain("a", "10.244.8.0/24"))
	tt.wantState(lease.Held, "")
	await.NoDiff(t, func() string { return cmp.Diff("10.244.8.0/24", tt.last().Own.String()) })
}

func TestAnnotationsAreRepaired(t *testing.T) {
	const p = "flannel.alpha.coreos.com/"
	s := fakekube.New(t)
	n := plain("a", "10.244.1.0/24")
	// of a former life
	n.Annotations[p+"public-ipv6"], n.Annotations[p+"backend-v6-data"] = "2001:db8::bad", "null"
	n.Annotations["example.com/other"] = "stays"
	s.Put(n)
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	want := s.Node("a").Annotations
	if _, ok := want[p+"public-ipv6"]; ok || want["example.com/other"] != "stays" {
		t.Errorf("annotations %q", want)
	}
	for _, vandal := range []func(map[string]string){
		func(a map[string]string) { a[p+"public-ip"] = "203.0.113.99" },
		func(a map[string]string) { delete(a, p+"kube-subnet-manager") },
		func(a map[string]string) { delete(a, p+"weft") },
		func(a map[string]string) { a[p+"backend-data"] = "{" },
		func(a map[string]string) {
			for key := range a {
				if strings.HasPrefix(key, p) {
					delete(a, key)
				}
			}
		},
	} {
		s.Change("a", func(n *corev1.Node) { vandal(n.Annotations) })
		await.NoDiff(t, func() string { return cmp.Diff(want, s.Node("a").Annotations) })
		tt.wantState(lease.Held, "")
	}

	// What we say changes.
	l := keeper.Local{Attrs: attrs("192.0.2.11", `{"VNI":1,"VtepMAC":"02:00:00:00:00:55"}`)}
	tt.SetLocal(l)
	await.NoDiff(t, func() string { return cmp.Diff("192.0.2.11", s.Node("a").Annotations[p+"public-ip"]) })

	// An administrator's address goes before ours, and ours is one more source.
	s.Change("a", func(n *corev1.Node) { n.Annotations[p+"public-ip-overwrite"] = "203.0.113.1" })
	await.NoDiff(t, func() string { return cmp.Diff("203.0.113.1", s.Node("a").Annotations[p+"public-ip"]) })
	await.NoDiff(t, func() string {
		var w lease.Weft
		if err := json.Unmarshal([]byte(s.Node("a").Annotations[p+"weft"]), &w); err != nil || len(w.Addrs) != 1 ||
			w.Addrs[0] != netip.MustParseAddr("192.0.2.11") {
			return s.Node("a").Annotations[p+"weft"]
		}
		return ""
	})
	await.NoDiff(t, func() string { return cmp.Diff("203.0.113.1", tt.last().Own.PublicIP.String()) })
	s.Change("a", func(n *corev1.Node) { n.Annotations[p+"public-ip-overwrite"] = "nonsense" })
	await.NoDiff(t, func() string { return cmp.Diff("192.0.2.11", s.Node("a").Annotations[p+"public-ip"]) })
	await.NoDiff(t, func() string {
		if notes := strings.Join(tt.Status().Notes, ";"); !strings.Contains(notes, "public-ip-overwrite") {
			return "notes " + notes
		}
		return ""
	})
	for _, patch := range s.Patches() {
		if strings.Contains(patch, "overwrite") || strings.Contains(patch, "example.com") ||
			strings.Contains(patch, "status") {
			t.Errorf("patch of what is not ours: %s", patch)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		verb, resource string // of which the account has no right
		state          lease.State
		store          bool // it shows in StoreErr, not in Err
	}{
		{"patch", "nodes/status", lease.Acquiring, false},
		{"list", "nodes", lease.Acquiring, true},
		{"watch", "nodes", lease.Held, true},
	} {
		t.Run(c.verb, func(t *testing.T) {
			s := fakekube.New(t)
			s.Streams(false)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Deny(c.verb + " " + c.resource)
			tt := newTester(t, s, configOf(s, "a"), nil)
			during(t, tt.Run)
			await.NoDiff(t, func() string {
				st := tt.Status()
				got := text(st.Err)
				if c.store {
					got = text(st.StoreErr)
				}
				if st.State != c.state || !strings.Contains(got, strconv.Quote(c.verb)) ||
					!strings.Contains(got, strconv.Quote(c.resource)) {
					return st.State.String() + ": " + got
				}
				return ""
			})
			s.Allow()
			tt.wantState(lease.Held, "")
			await.NoDiff(t, func() string { return text(tt.Status().StoreErr) })
		})
	}
}

func TestNodeOfThePod(t *testing.T) {
	s := fakekube.New(t)
	n := plain("a", "10.244.1.0/24")
	n.Annotations["flannel.alpha.coreos.com/node-public-ip"] = "192.0.2.77"
	s.Put(n)
	c := Config{APIURL: s.URL, PodName: "weft-x", PodNamespace: "kube-flannel"}
	client, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if got := client.Endpoints(); len(got) != 1 || got[0] != s.URL {
		t.Errorf("endpoints %q", got)
	}
	fails := func(want string) {
		t.Helper()
		if _, err := client.Node(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	fails("POD_NAMESPACE")
	s.Deny("get pods")
	fails(`"pods"`)
	s.Allow()
	s.PutPod("kube-flannel", "weft-x", "")
	fails("kube-flannel/weft-x")
	s.PutPod("kube-flannel", "weft-x", "a")
	s.Deny("get nodes")
	fails(`"nodes"`)
	s.Allow()
	got, err := client.Node(t.Context())
	want := Node{Name: "a", UID: string(s.Node("a").UID),
		Subnets:  lease.Subnets{V4: netip.MustParsePrefix("10.244.1.0/24")},
		PublicIP: netip.MustParseAddr("192.0.2.77")}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	s.Change("a", func(n *corev1.Node) { n.Annotations["flannel.alpha.coreos.com/node-public-ip"] = "here" })
	fails(`node-public-ip "here"`)
	s.Remove("a")
	fails(`"a"`)
	s.Close()
	fails(s.URL)
}

func TestConfigFaults(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		in   Config
		want []string
	}{
		{Config{APIURL: "192.0.2.1:6443", AnnotationPrefix: "a/b/c"},
			[]string{"--kube-api-url", "--kube-annotation-prefix", "NODE_NAME"}},
		{Config{APIURL: "https://192.0.2.1", NodeName: "../x"}, []string{"NODE_NAME"}},
		{Config{APIURL: "https://192.0.2.1", PodName: "A", PodNamespace: "b"}, []string{"POD_NAME"}},
		{Config{Kubeconfig: "/nowhere/config", NodeName: "a"}, []string{"--kubeconfig-file", "/nowhere/config"}},
		{Config{NodeName: "a"}, []string{"--kubeconfig-file nor --kube-api-url", "KUBERNETES_SERVICE_HOST"}},
	} {
		err := c.in.Check()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", c.in, err, want)
			}
		}
	}
}

// TestAlloc has no peers, and so no reason to hear of them.
func TestAlloc(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	tt := newTester(t, s, configOf(s, "a"), func(o *Options) {
		o.RawConfig = []byte(`{"Network":"10.244.0.0/16","Backend":{"Type":"alloc"}}`)
	})
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	for _, q := range s.Lists() {
		if !strings.Contains(q, "fieldSelector=metadata.name%3Da") {
			t.Errorf("asked for all Nodes: %s", q)
		}
	}
	if n := len(tt.last().Peers); n != 0 {
		t.Errorf("%d peers", n)
	}
}
