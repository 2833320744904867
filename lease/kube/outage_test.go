package kube

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/lease/belief"
	"weft/test/await"
	"weft/test/fakekube"
	"weft/test/ports"
)

// lastState runs a manager until it has cached what it knows, and returns that.
func lastState(t *testing.T, s *fakekube.Server) func(*Options) {
	t.Helper()
	dir := t.TempDir()
	tt := newTester(t, s, configOf(s, "a"), func(o *Options) { o.Cache = belief.NewCache(dir, "kube") })
	stop := during(t, tt.Run)
	tt.wantState(lease.Held, "")
	stop()
	return func(o *Options) {
		o.Cache = belief.NewCache(dir, "kube")
		c, err := o.Cache.Load()
		if err != nil {
			t.Fatal(err)
		}
		o.Cached = &c
	}
}

// serveAt serves s at an address of its own, until it is stopped.
func serveAt(t *testing.T, s *fakekube.Server, addr string) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return s.Serve(l)
}

func TestStartWithoutTheAPIServer(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
	cached := lastState(t, s)
	s.Put(peer("d", "10.244.4.0/24", "192.0.2.4"))
	s.Remove("c")

	addr := ports.Loopback(t).String()
	tt := newTester(t, s, Config{APIURL: "http://" + addr, NodeName: "a"}, cached)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
	if own := tt.last().Own.String(); own != "10.244.1.0/24" {
		t.Errorf("own %s", own)
	}
	await.NoDiff(t, func() string {
		st := tt.Status()
		if st.State != lease.Unconfirmed || !strings.Contains(text(st.StoreErr), addr) || !st.StoreSeen.IsZero() {
			return fmt.Sprintf("%s, %v, seen %s", st.State, st.StoreErr, st.StoreSeen)
		}
		return ""
	})
	serveAt(t, s, addr)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "d 10.244.4.0/24 192.0.2.4")
	tt.wantState(lease.Held, "")
	if st := tt.Status(); st.StoreErr != nil || st.Alarm != "" {
		t.Errorf("%v, alarm %q", st.StoreErr, st.Alarm)
	}
}

func TestTheAPIServerGoesAndComes(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	addr := ports.Loopback(t).String()
	stop := serveAt(t, s, addr)
	tt := newTester(t, s, Config{APIURL: "http://" + addr, NodeName: "a"}, nil)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	tt.wantState(lease.Held, "")
	for range 2 {
		stop()
		await.NoDiff(t, func() string {
			if tt.Status().StoreErr == nil {
				return "the silence is not noticed"
			}
			return ""
		})
		tt.wantState(lease.Held, "") // what we wrote is still there
		s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
		s.Remove("b")
		stop = serveAt(t, s, addr)
		tt.wantPeers("c 10.244.3.0/24 192.0.2.3")
		await.NoDiff(t, func() string { return text(tt.Status().StoreErr) })
		s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
		tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
		s.Remove("c")
		tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	}
	if alarm := tt.last().Alarm; alarm != "" {
		t.Errorf("alarm %q", alarm)
	}
}

func TestWatchesEndAndExpire(t *testing.T) {
	t.Parallel()
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) {
			s := fakekube.New(t)
			s.Streams(streams)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
			tt := newTester(t, s, configOf(s, "a"), nil)
			during(t, tt.Run)
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
			s.CutWatches() // and nothing is lost
			s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
			s.Forget("b")
			s.CutWatches()
			tt.wantPeers("c 10.244.3.0/24 192.0.2.3")
			if st := tt.Status(); st.Alarm != "" {
				t.Errorf("alarm %q", st.Alarm)
			}
		})
	}
}

func TestHangIsNoticed(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	tt.life.pace.probe, tt.life.pace.answer = 50*time.Millisecond, 100*time.Millisecond
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	s.Hang(true)
	await.NoDiff(t, func() string {
		if st := tt.Status(); !strings.Contains(text(st.StoreErr), "answer") {
			return "store error " + text(st.StoreErr)
		}
		return ""
	})
	s.Hang(false)
	await.NoDiff(t, func() string { return text(tt.Status().StoreErr) })
}

// TestAnotherCluster has the API server wiped: every Node is registered anew. What is gone by
// that is kept; what comes back elsewhere is believed.
func TestAnotherCluster(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
	s.Restore(10)
	s.Put(plain("a", "10.244.1.0/24"))
	s.CutWatches()
	await.NoDiff(t, func() string {
		if alarm := tt.Status().Alarm; !strings.Contains(alarm, "another cluster") ||
			!strings.Contains(alarm, "records") {
			return "alarm " + alarm
		}
		return ""
	})
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
	tt.wantState(lease.Held, "")
	s.Put(peer("b", "10.244.9.0/24", "192.0.2.2"))
	tt.wantPeers("c 10.244.3.0/24 192.0.2.3", "b 10.244.9.0/24 192.0.2.2")
	s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
	await.NoDiff(t, func() string { return tt.Status().Alarm })
	s.Remove("c") // now it is the cluster that we know
	tt.wantPeers("b 10.244.9.0/24 192.0.2.2")
}

// TestAnOldStateKeepsItsNodesForADay starts with what was saved a week ago, in a cluster that was wiped: a
// file is written when something changes, and so its age says nothing of the Nodes in it.
func TestAnOldStateKeepsItsNodesForADay(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	cached := lastState(t, s)
	s.Restore(10)
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), func(o *Options) {
		cached(o)
		for i := range o.Cached.Memory.Peers {
			o.Cached.Memory.Peers[i].Until = time.Now().Add(-6 * 24 * time.Hour)
		}
	})
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	if alarm := tt.Status().Alarm; !strings.Contains(alarm, "another cluster") {
		t.Errorf("alarm %q", alarm)
	}
}

// TestOurNodeIsMadeAnew is no other cluster: the others are who they were.
func TestOurNodeIsMadeAnew(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
	cached := lastState(t, s)
	s.Remove("a")
	s.Remove("c")
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), cached)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
	tt.wantState(lease.Held, "")
	if alarm := tt.Status().Alarm; alarm != "" {
		t.Errorf("alarm %q", alarm)
	}
}

// TestARestoreIsNoticed goes back to an older version, at which the watch would hear nothing, whether our
// Node was another one then or not.
func TestARestoreIsNoticed(t *testing.T) {
	for name, own := range map[string]string{"our Node is older": "50", "our Node is the same": ""} {
		t.Run(name, func(t *testing.T) {
			s := fakekube.New(t)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
			tt := newTester(t, s, configOf(s, "a"), nil)
			during(t, tt.Run)
			tt.wantState(lease.Held, "")
			s.Put(peer("c", "10.244.3.0/24", "192.0.2.3"))
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
			a, b := s.Node("a"), s.Node("b") // c joined after the backup
			at := version(a.ResourceVersion)
			if own != "" {
				a.ResourceVersion, at = own, 60
			}
			s.Restore(at, a, b)
			s.CutWatches()
			await.NoDiff(t, func() string {
				if alarm := tt.Status().Alarm; !strings.Contains(alarm, "revision") {
					return "alarm " + alarm
				}
				return ""
			})
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
			s.Put(peer("d", "10.244.4.0/24", "192.0.2.4"))
			tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3", "d 10.244.4.0/24 192.0.2.4")
		})
	}
}

// TestBurst has many Nodes listed, and all of them changed at once.
func TestBurst(t *testing.T) {
	const count = 1200
	s := fakekube.New(t)
	s.Streams(false)
	s.Put(plain("a", "10.200.1.0/24"))
	node := func(i, addr int) *corev1.Node {
		return peer(fmt.Sprintf("n%04d", i), fmt.Sprintf("10.%d.%d.0/24", i/250, i%250),
			fmt.Sprintf("172.16.%d.%d", addr/250, addr%250+1))
	}
	for i := range count {
		s.Put(node(i, i))
	}
	tt := newTester(t, s, configOf(s, "a"), func(o *Options) {
		o.RawConfig = []byte(`{"Network":"10.0.0.0/8","Backend":{"Type":"vxlan"}}`)
	})
	during(t, tt.Run)
	await.NoDiff(t, func() string {
		if n := len(tt.last().Peers); n != count {
			return fmt.Sprintf("%d peers", n)
		}
		return ""
	})
	pages := 0
	for _, q := range s.Lists() {
		if strings.Contains(q, "limit=500") {
			pages++
		}
	}
	if pages != (count+1+pageSize-1)/pageSize {
		t.Errorf("%d pages", pages)
	}
	before := tt.count()
	for i := range count {
		s.Put(node(i, (i+1)%count))
	}
	await.NoDiff(t, func() string {
		p := tt.last().Peers
		if len(p) != count || p[0].PublicIP.String() != "172.16.0.2" ||
			p[count-1].PublicIP.String() != "172.16.0.1" {
			return fmt.Sprintf("%d peers, the first at %s, the last at %s", len(p), p[0].PublicIP, p[count-1].PublicIP)
		}
		return ""
	})
	if sets := tt.count() - before; sets > count/20 {
		t.Errorf("%d sets for %d changes", sets, count)
	}
}

// TestTLS has what a cluster has: HTTP/2, and the authority of a kubeconfig. The certificate of
// another is not accepted, and the error says so.
func TestTLS(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(func() { s.Stop(srv) })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for name, text := range map[string]string{"ca.crt": string(ca),
		"kubeconfig": `{"apiVersion":"v1","kind":"Config","current-context":"x",
		"clusters":[{"name":"c","cluster":{"server":"` + srv.URL + `","certificate-authority":"ca.crt"}}],
		"users":[{"name":"u","user":{"token":"secret"}}],
		"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tt := newTester(t, s, Config{Kubeconfig: kubeconfig, NodeName: "a"}, nil)
	if d := cmp.Diff([]string{srv.URL}, tt.client.Endpoints()); d != "" {
		t.Error(d)
	}
	during(t, tt.Run)
	tt.wantState(lease.Held, "")

	client, err := New(Config{APIURL: srv.URL, NodeName: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	if _, err := client.Node(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster's") {
		t.Errorf("%v", err)
	}
}
