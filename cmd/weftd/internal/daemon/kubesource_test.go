package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/lease"
	"weft/lease/belief"
)

const clusterConf = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`

// kubeAt is a source whose API server answers every request with what is in body.
func kubeAt(t *testing.T, body *atomic.Value, change func(*options.Config)) *kubeSource {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := body.Load().(string)
		w.Header().Set("Content-Type", "application/json")
		if text == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			text =
				`{"kind":"Status","apiVersion":"v1","status":"Failure","code":503,"reason":"ServiceUnavailable","message":"etcd is away"}`
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	cfg := options.Config{
		CacheDir: filepath.Join(dir, "cache"), NetConfigPath: filepath.Join(dir, "net-conf.json"),
		Kube: options.Kube{On: true, APIURL: server.URL, AnnotationPrefix: "flannel.alpha.coreos.com",
			NodeName: "a"},
	}
	if change != nil {
		change(&cfg)
	}
	if err := os.WriteFile(cfg.NetConfigPath, []byte(clusterConf), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openKube(cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func nodeObject(name, annotations string) string {
	return fmt.Sprintf(
		`{"kind":"Node","apiVersion":"v1","metadata":{"name":%q,"uid":"u","annotations":{%s}},"spec":{"podCIDR":"10.42.7.0/24"}}`, name, annotations)
}

func TestAskLearnsWhoWeAre(t *testing.T) {
	var body atomic.Value
	s := kubeAt(t, &body, nil)
	var heard []bool
	ask := func() (Network, string) {
		return s.ask(t.Context(), func(err error) { heard = append(heard, err == nil) })
	}
	if _, why := ask(); !strings.HasPrefix(why, "API server: ") {
		t.Errorf("without an answer: %q", why)
	}
	body.Store(nodeObject("a",
		`"flannel.alpha.coreos.com/node-public-ip":"192.0.2.9","flannel.alpha.coreos.com/node-public-ipv6":"2001:db8::9"`))
	f, why := ask()
	want := Network{node: "a", config: parse(t, clusterConf), publicIP: netip.MustParseAddr("192.0.2.9"),
		publicIPv6: netip.MustParseAddr("2001:db8::9")}
	if why != "" || !f.same(want) || !f.config.Equal(want.config.NetworkConfig) {
		t.Errorf("%q, %+v", why, f)
	}
	if fmt.Sprint(heard) != "[false true]" {
		t.Errorf("heard %v", heard)
	}
	n, err := s.loadNode()
	if err != nil || !s.network(n).same(want) {
		t.Errorf("kept: %v, %+v", err, n)
	}
	if err := s.confirm(t.Context(), f); err != nil {
		t.Errorf("it is what it was: %v", err)
	}
	body.Store(nodeObject("a", ""))
	if err := s.confirm(t.Context(), f); !errors.Is(err, errNodeChanged) ||
		!strings.Contains(err.Error(), "192.0.2.9") {
		t.Errorf("the annotations are gone: %v", err)
	}
}

func TestIdentityThatIsGivenWins(t *testing.T) {
	var body atomic.Value
	body.Store(nodeObject("a", ""))
	s := kubeAt(t, &body, func(c *options.Config) { c.NodeID = "mine" })
	if f, why := s.ask(t.Context(), func(error) {}); why != "" || f.node != "mine" {
		t.Errorf("%q, %+v", why, f)
	}
}

func TestALongNameIsStillAnIdentity(t *testing.T) {
	long := strings.Repeat("worker.", 30) + "example"
	id, other := identity(long), identity(long+"s")
	if _, _, err := lease.LoadIdentity(lease.IdentityOptions{Given: id}); err != nil || id == other ||
		!strings.HasPrefix(id, "worker.worker.") {
		t.Errorf("%v: %q, %q", err, id, other)
	}
	if label := strings.Repeat("a", 63); identity(label) != label {
		t.Error("a label is not kept")
	}
}

func TestOnlyAUsableLastStateOfAClusterIsUsed(t *testing.T) {
	cached := func(node, config string) belief.Cached {
		return belief.Cached{
			Own: lease.Record{
				Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24")},
				Attrs:   lease.Attrs{Weft: &lease.Weft{Node: node}},
			},
			Memory: belief.Memory{Config: []byte(config)},
		}
	}
	known := kubeNode{Name: "a", PublicIP: netip.MustParseAddr("192.0.2.9")}
	for _, tt := range []struct {
		name   string
		known  kubeNode
		given  string // NODE_NAME
		cached belief.Cached
		want   string // the node, "" if the state is not used
		public bool
	}{
		{"ours", known, "a", cached("a", clusterConf), "a", true},
		{"ours, by what was kept", known, "", cached("a", clusterConf), "a", true},
		{"ours, and nothing was kept", kubeNode{}, "a", cached("a", clusterConf), "a", false},
		{"kept of another", known, "b", cached("b", clusterConf), "b", false},
		{"another node's", known, "b", cached("a", clusterConf), "", false},
		{"nobody's", kubeNode{}, "", cached("", clusterConf), "", false},
		{"without a subnet", known, "a", belief.Cached{Memory: belief.Memory{Config: []byte(clusterConf)}},
			"", false},
		{"another configuration than the file's, which was served", known, "a",
			cached("a", `{"Network":"10.42.0.0/16","Backend":{"Type":"vxlan"}}`), "a", true},
		{"a configuration that this build cannot serve", known, "a",
			cached("a", `{"Network":"10.42.0.0/16","Backend":{"Type":"ipsec"}}`), "", false},
		{"the same configuration in other words", known, "a",
			cached("a", `{"SubnetLen":20,"Backend":{"Type":"udp"},"Network":"10.42.9.9/16"}`), "a", true},
		{"no configuration's", known, "a", cached("a", ""), "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var body atomic.Value
			s := kubeAt(t, &body, func(c *options.Config) {
				c.Kube.NodeName, c.Kube.PodName, c.Kube.PodNamespace = tt.given, "p", "n"
			})
			if tt.known.Name != "" {
				s.cfg.Kube.NodeName = tt.known.Name
				if err := s.saveNode(tt.known); err != nil {
					t.Fatal(err)
				}
				s.cfg.Kube.NodeName = tt.given
			}
			f, err := s.recall(tt.cached)
			if err == nil && f.config.BackendType != parse(t, string(tt.cached.Memory.Config)).BackendType {
				t.Errorf("the network is %+v, not the cached one", f.config)
			}
			if f.node != tt.want || (err == nil) != (tt.want != "") || f.publicIP.IsValid() != tt.public {
				t.Errorf("%v, %+v", err, f)
			}
		})
	}
}

func TestWhatWasKeptOfTheNodeMayBeGarbage(t *testing.T) {
	var body atomic.Value
	s := kubeAt(t, &body, nil)
	if err := os.MkdirAll(s.cfg.CacheDir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", `{}`, `{"name":"a","publicIP":"here"}`, `{"name":"` +
		strings.Repeat("a", maxNodeFile) + `"}`, `[]`} {
		if err := os.WriteFile(s.nodeFile(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := s.loadNode(); err == nil {
			t.Errorf("%.40q: %+v", text, n)
		}
	}
	body.Store(nodeObject("a", ""))
	if _, why := s.ask(t.Context(), func(error) {}); why != "" {
		t.Error(why)
	}
	if n, err := s.loadNode(); err != nil || n.Name != "a" {
		t.Errorf("it is not replaced: %v, %+v", err, n)
	}
}

func TestAFileThatChangesIsNoticed(t *testing.T) {
	var body atomic.Value
	s := kubeAt(t, &body, nil)
	for text, want := range map[string]string{
		clusterConf: "",
		`{ "Network" : "10.42.0.0/16","SubnetLen":25, "Backend":{"Type":"udp"}}`: "",
		`{"Network":"10.43.0.0/16","Backend":{"Type":"udp"}}`:                    "",
		`{"Network":"10.42.0.0/16","Backend":{"Type":"vxlna"}}`:                  `did you mean "vxlan"?`,
		`{`: "JSON",
	} {
		if err := os.WriteFile(s.cfg.NetConfigPath, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := s.offered(lease.Status{})
		if err := o.Fault; !o.Known || (err != nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), want) || len(o.Raw) == 0 {
			t.Errorf("%s: %v", text, err)
		}
		if want == "" && !o.NetworkConfig.Equal(
			parse(t, strings.ReplaceAll(text, `"SubnetLen":25,`, "")).NetworkConfig) {
			t.Errorf("%s: %+v", text, o.NetworkConfig)
		}
	}
}

func TestNobodyGivesASubnetBackToACluster(t *testing.T) {
	var body atomic.Value
	s := kubeAt(t, &body, nil)
	if _, err := s.release(t.Context(), control.ReleaseRequest{Subnet: "10.42.7.0/24", Force: true}, "a"); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "kubectl") {
		t.Error(err)
	}
}

// A failed save names the file, and its error is the same each time, so that it is logged once.
func TestAFailedSaveOfTheNodeNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	s := &kubeSource{cfg: options.Config{CacheDir: dir}}
	if err := os.MkdirAll(filepath.Join(s.nodeFile(), "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	first, second := s.saveNode(kubeNode{Name: "a"}), s.saveNode(kubeNode{Name: "a"})
	if first == nil || second == nil || first.Error() != second.Error() ||
		!strings.Contains(first.Error(), s.nodeFile()) {
		t.Errorf("%v, then %v", first, second)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
