package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/lease"
	"weft/routing/routehook"
	"weft/test/await"
	"weft/test/netns"
)

// hookFake is a controller that says of each route what it is told to say, and accepts the others.
type hookFake struct {
	*httptest.Server
	mu    sync.Mutex
	down  bool
	says  map[string]routehook.Verdict // by subnet
	views []routehook.View
}

func newHookFake(t *testing.T) *hookFake {
	t.Helper()
	f := &hookFake{says: map[string]routehook.Verdict{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *hookFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		http.Error(w, "the database is away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("ETag", `"x"`)
	if r.Method == http.MethodGet {
		return
	}
	var v routehook.View
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.views = append(f.views, v)
	a := routehook.Answer{SchemaVersion: routehook.Schema, Instance: v.Instance, Generation: v.Generation}
	for _, x := range v.Routes {
		says, ok := f.says[x.Subnet.String()]
		if !ok {
			says.State = routehook.Accepted
		}
		says.Subnet = x.Subnet
		a.Routes = append(a.Routes, says)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a)
}

func (f *hookFake) set(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn()
}

// given says what the latest view had, and how many there were since the last call.
func (f *hookFake) given() (n int, v routehook.View) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n = len(f.views); n > 0 {
		v = f.views[n-1]
	}
	f.views = nil
	return n, v
}

func hookRecord(n int) lease.Record {
	r := vxlanPeer(n)
	r.BackendType, r.BackendData, r.BackendV6Data = typeHook, nil, nil
	return r
}

const hookConfig = `{"Network":"10.5.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:5::/48","Backend":{"Type":"route-hook"}}`

// openHook makes a backend whose clock the returned function moves.
func openHook(t *testing.T, k *Kernel, f *hookFake, state string) (*kernelTest, func(time.Duration)) {
	t.Helper()
	b := openKernelBackend(t, k, hookConfig, func(c *BackendConfig) {
		c.StateDir, c.Hook = state, &routehook.Options{URL: f.URL}
	})
	var mu sync.Mutex
	now := time.Now()
	b.driver.(*hookRunner).now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	return b, func(d time.Duration) { mu.Lock(); now = now.Add(d); mu.Unlock(); b.nudge(1) }
}

// The controller is given all routes, when they change and now and then; what it refuses is left out with its
// reason, and a controller that is away costs nothing that it took before.
func TestRouteHook(t *testing.T) {
	f := newHookFake(t) // in the machine's namespace, where the client dials too
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	state := t.TempDir()
	b, pass := openHook(t, k, f, state)
	if data, _ := b.Publish(); data != nil || b.RecordType() != "route-hook" {
		t.Errorf("published %s, %s", data, b.RecordType())
	}
	other := vxlanPeer(4)
	if err := b.Apply(t.Context(), kernelSet(b, hookRecord(2), hookRecord(3), other)); err != nil {
		t.Error(err)
	}
	n, v := f.given()
	var got []string
	for _, r := range v.Routes {
		got = append(got, fmt.Sprint(r.Subnet, " ", r.NextHop, " ", r.Own))
	}
	const want = "10.5.1.0/24 192.0.2.1 true, 10.5.2.0/24 192.0.2.2 false, 10.5.3.0/24 192.0.2.3 false, " +
		"fd00:5:0:1::/64 2001:db8::1 true, fd00:5:0:2::/64 2001:db8::2 false, fd00:5:0:3::/64 2001:db8::3 false"
	if s := strings.Join(got, ", "); n != 1 || s != want || v.Node != "a" || v.Generation != 1 ||
		v.Lifetime != 900 || v.Check() != nil {
		t.Errorf("%d views, %s of %+v\nwant %s", n, s, v, want)
	}
	st := b.Status()
	if !st.Up || !st.InPlace || st.Path != "routes" || st.MTU != 1500 || st.Peers != 2 || len(st.Skipped) != 1 ||
		st.Hook.Accepted != 6 || st.Hook.Taken.IsZero() ||
		st.Hook.Controller != f.URL+"/v1/views/a" || st.Reached[0].How.String() != "controller" {
		t.Errorf("status %+v", st)
	}
	b.start()
	b.apply(kernelSet(b, hookRecord(2), hookRecord(3), other)) // the same
	if n, _ := f.given(); n != 0 {
		t.Errorf("the same was given %d times", n)
	}
	pass(70 * time.Second)
	await.OK(t, "the same again, after a minute", func() error { return f.expect(1, 1) })

	// One is refused, one is not there yet, and one has left.
	f.set(func() {
		f.says["10.5.2.0/24"] = routehook.Verdict{State: routehook.Refused, Reason: "the table is full"}
		f.says["fd00:5:0:2::/64"] = routehook.Verdict{State: routehook.Pending}
	})
	err := b.Apply(t.Context(), kernelSet(b, hookRecord(2)))
	if err == nil || !strings.Contains(err.Error(), "controller") || !strings.Contains(err.Error(), "place") {
		t.Errorf("a refused route: %v", err)
	}
	if st := b.Status(); !st.Up || st.Peers != 0 || len(st.Skipped) != 2 || st.Hook.Accepted != 2 ||
		st.Hook.Pending != 1 || st.Hook.Refused != 1 {
		t.Errorf("status %+v", st)
	}
	if _, v := f.given(); len(v.Routes) != 4 || v.Generation != 2 {
		t.Errorf("given %+v", v)
	}
	f.set(func() { clear(f.says) })
	pass(70 * time.Second)
	await.OK(t, "accepted by itself", func() error {
		if st := b.Status(); st.Peers != 1 || st.LastError != "" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})

	// It is away: what it accepted stays, the fault is told, and it is asked less and less.
	f.set(func() { f.down = true })
	if err := b.Apply(t.Context(), kernelSet(b, hookRecord(2), hookRecord(3))); err == nil ||
		!strings.Contains(err.Error(), "503") {
		t.Errorf("a controller that is away: %v", err)
	}
	if st := b.Status(); !st.Up || !st.InPlace || st.LastError == "" || st.Hook.Fault == "" ||
		st.Hook.Since.IsZero() || st.Hook.Failures == 0 {
		t.Errorf("status %+v", st)
	}
	b.stop()

	// A restart meanwhile: pods get addresses, since the controller had accepted this node's routes.
	b, pass = openHook(t, k, f, state)
	if err := b.Apply(t.Context(), kernelSet(b, hookRecord(2))); err == nil || !b.Status().Up ||
		b.Status().Peers != 1 {
		t.Errorf("after a restart: %v, %+v", err, b.Status())
	}
	b.start()
	f.set(func() { f.down = false })
	pass(70 * time.Second)
	await.OK(t, "taken", func() error {
		if st := b.Status(); st.LastError != "" || st.Hook.Fault != "" {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	b.stop()
}

// expect says whether the controller was given n views, the last of that generation; if not, they count
// further.
func (f *hookFake) expect(n int, generation uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.views) != n || f.views[n-1].Generation != generation {
		return fmt.Errorf("%d views, want %d: %+v", len(f.views), n, f.views)
	}
	f.views = nil
	return nil
}

// A view with a pending route is given again soon, and later and later, until the route is there; a change
// begins anew.
func TestPendingRoutesAreGivenAgainSoon(t *testing.T) {
	f := newHookFake(t)
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	b, pass := openHook(t, k, f, t.TempDir()) // and never started: what Apply does not do is done by nobody
	peers := []lease.Record{hookRecord(2)}
	step := func(d time.Duration, want int) {
		t.Helper()
		pass(d)
		_ = b.Apply(t.Context(), kernelSet(b, peers...)) // an error, while a route is pending
		if n, _ := f.given(); n != want {
			t.Fatalf("after %v more %d views, want %d", d, n, want)
		}
	}
	f.set(func() { f.says["10.5.2.0/24"] = routehook.Verdict{State: routehook.Pending} })
	step(0, 1)
	for wait := time.Second; wait < time.Minute; wait *= 2 {
		step(wait*9/10, 0)
		step(wait*2/10, 1)
	}
	step(54*time.Second, 0)
	step(10*time.Second, 1)
	peers = append(peers, hookRecord(3))
	step(0, 1)
	step(900*time.Millisecond, 0)
	step(200*time.Millisecond, 1)
	f.set(func() { clear(f.says) })
	step(2200*time.Millisecond, 1)
	step(50*time.Second, 0)
	if st := b.Status(); st.Hook.Pending != 0 || st.Peers != 2 || st.LastError != "" {
		t.Errorf("%+v", st)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A node whose own route the controller has never accepted is not ready, and says why.
func TestRouteHookWaitsForItsOwnRoute(t *testing.T) {
	f := newHookFake(t)
	f.says["10.5.1.0/24"] = routehook.Verdict{State: routehook.Refused, Reason: "node z has it"}
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	state := t.TempDir()
	b, pass := openHook(t, k, f, state)
	err := b.Apply(t.Context(), kernelSet(b))
	if err == nil || !strings.Contains(err.Error(), "10.5.1.0/24") || b.Status().Up {
		t.Errorf("%v, %+v", err, b.Status())
	}
	if _, err := os.Stat(filepath.Join(state, HookFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("noted: %v", err)
	}
	f.set(func() { clear(f.says) })
	pass(70 * time.Second)
	b.apply(kernelSet(b))
	if !b.Status().Up {
		t.Errorf("%+v", b.Status())
	}
	// What another controller accepted counts for nothing.
	other := newHookFake(t)
	other.down = true
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b, _ = openHook(t, k, other, state)
	if err := b.Apply(t.Context(), kernelSet(b)); err == nil || b.Status().Up {
		t.Errorf("%v, %+v", err, b.Status())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// A controller that began anew and cannot look yet says that the node's own route is pending, which takes
// nothing from a node whose packets pass; that it is refused does.
func TestAPendingOwnRouteWasInPlace(t *testing.T) {
	f := newHookFake(t)
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24", "2001:db8::1/64")
	state := t.TempDir()
	b, pass := openHook(t, k, f, state) // and never started
	if err := b.Apply(t.Context(), kernelSet(b)); err != nil {
		t.Error(err)
	}
	said := func(s routehook.State) {
		f.set(func() { f.says["10.5.1.0/24"] = routehook.Verdict{State: s, Reason: "dial tcp: i/o timeout"} })
		pass(70 * time.Second)
		if err := b.Apply(t.Context(), kernelSet(b)); err == nil || !strings.Contains(err.Error(), "10.5.1.0/24") ||
			!strings.Contains(err.Error(), "i/o") {
			t.Errorf("%s: %v", s, err)
		}
	}
	said(routehook.Pending)
	if st := b.Status(); !st.Up || !st.InPlace || st.Hook.Pending != 1 {
		t.Errorf("%+v", st)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b, pass = openHook(t, k, f, state)
	said(routehook.Pending)
	if st := b.Status(); !st.Up || !st.InPlace {
		t.Errorf("after a restart: %+v", st)
	}
	said(routehook.Refused)
	if st := b.Status(); st.Up || st.InPlace {
		t.Errorf("%+v", st)
	}
	said(routehook.Pending) // what was refused was not in place
	if st := b.Status(); st.Up || st.InPlace {
		t.Errorf("%+v", st)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// What a host needs is asked for before anything is made.
func TestRouteHookNeedsItsController(t *testing.T) {
	k := inNamespace(t)
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	network, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"route-hook","Interval":30}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := newBackendConfig(t, k, network)
	if _, err := NewNode(t.Context(), c); !errors.Is(err, ErrNoController) {
		t.Errorf("without a controller: %v", err)
	}
	c.Hook = &routehook.Options{URL: "http://192.0.2.9/"}
	if _, err := NewNode(t.Context(), c); err == nil || !strings.Contains(err.Error(), "want https") {
		t.Errorf("without TLS: %v", err)
	}
	if _, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"route-hook","Interval":5}}`)); err ==
		nil || !strings.Contains(err.Error(), "Backend.Interval") {
		t.Errorf("a short interval: %v", err)
	}
}

// A view is given less often the more routes it has, and nodes that began together do not stay together.
func TestHookAgain(t *testing.T) {
	for routes, want := range map[int]time.Duration{2: time.Minute, 1200: time.Minute,
		10_000: 500 * time.Second} {
		if got := hookAgain(60, routes); got != want {
			t.Errorf("%d routes: %v, want %v", routes, got, want)
		}
	}
	for routes, want := range map[int]time.Duration{2: time.Second, 200: time.Second, 2000: 10 * time.Second} {
		if got := hookPending(routes); got != want {
			t.Errorf("%d routes of which one is pending: %v, want %v", routes, got, want)
		}
	}
	for range 1000 {
		if d := spread(time.Minute); d < 57*time.Second || d > 63*time.Second {
			t.Fatal(d)
		}
	}
	if got := (hookRoutes("a", vxlanSituation(netlessRecord()))); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// netlessRecord is a peer's without an address.
func netlessRecord() lease.Record {
	r := hookRecord(2)
	r.PublicIP, r.PublicIPv6 = netip.Addr{}, netip.Addr{}
	return r
}

// The node's loop wakes for the driver's turn, however long an error has it wait, and does not spin for one
// that was missed.
func TestTheActorsTurnComesInTime(t *testing.T) {
	for _, c := range []struct{ until, least, most time.Duration }{
		{time.Hour, retryLast, retryLast},
		{10 * time.Second, 9 * time.Second, 10 * time.Second},
		{time.Millisecond, tidy, tidy},
		{-time.Second, retryLast, retryLast},
	} {
		l := &Node{driver: &hookRunner{due: time.Now().Add(c.until)}}
		if got := l.sooner(retryLast); got < c.least || got > c.most {
			t.Errorf("%v: %v, want %v to %v", c.until, got, c.least, c.most)
		}
	}
	if got := (&Node{driver: &hookRunner{}}).sooner(retryLast); got != retryLast {
		t.Errorf("no turn is due: %v", got)
	}
}

// With thousands of routes pending the status says of each that it is, the error names a few reasons, and the
// log has a line for each peer whose reason is new.
func TestThousandsOfPendingRoutesAreFewFaults(t *testing.T) {
	const n = 3000
	var log strings.Builder
	c := &Node{log: slog.New(slog.NewTextHandler(&log, nil))}
	var out outcome
	for i := range n {
		s := lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}
		c.want.reached = append(c.want.reached, Reached{Subnets: s, Subnet: s.V4, How: HowController})
		out.peers = append(out.peers, peerFault{s, s.V4,
			fmt.Errorf("pending, says the controller for the %dth time", i)})
	}
	for _, pending := range []int{n, n, n - 1} {
		log.Reset()
		before := len(c.status.Skipped)
		out.peers = out.peers[:pending]
		var r round
		c.tellPeers(&r, out)
		c.report(r.st, errors.Join(r.faults...))
		if len(r.faults) != toldFaults+1 || len(c.status.Skipped) != pending || c.status.Peers != n-pending {
			t.Errorf("%d pending: %d faults, %d peers skipped and %d used", pending, len(r.faults),
				len(c.status.Skipped), c.status.Peers)
		}
		if lines, want := strings.Count(log.String(), "event=peer_unused "),
			pending-min(before, pending); lines != want {
			t.Errorf("%d pending: %d lines in the log, want %d", pending, lines, want)
		}
	}
}
