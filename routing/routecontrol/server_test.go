package routecontrol

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weft/routing/routehook"
	"weft/test/await"
)

// table is a Programmer that notes what it is given, and cannot make some routes.
type table struct {
	mu     sync.Mutex
	have   []string
	faults map[netip.Prefix]error
	fails  error         // of the round as a whole
	hold   chan struct{} // if not nil, a round lasts until it is closed
	begun  chan struct{} // if not nil, a round that is held says so there while there is room
	rounds int
}

func (p *table) Program(ctx context.Context, want []routehook.Route, keep bool) (map[netip.Prefix]error,
	error) {
	p.mu.Lock()
	hold, begun := p.hold, p.begun
	p.mu.Unlock()
	if hold != nil {
		select {
		case begun <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds++
	if p.fails != nil {
		return nil, p.fails
	}
	if !keep {
		p.have = nil
	}
	for _, r := range want {
		if s := fmt.Sprint(r.Subnet, " ", r.NextHop); p.faults[r.Subnet] == nil && !slices.Contains(p.have, s) {
			p.have = append(p.have, s)
		}
	}
	return maps.Clone(p.faults), nil
}

// be changes how it is from now on.
func (p *table) be(change func(*table)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

type cluster struct {
	t     *testing.T
	now   atomic.Int64 // seconds
	wait  time.Duration
	table *table
	*httptest.Server
	control atomic.Pointer[Controller]
	token   string
	end     func() // ends the rounds of the controller that there is
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, wait: await.Patience, table: &table{}, end: func() {}}
	c.now.Store(1_800_000_000)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.control.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	t.Cleanup(func() { c.end() })
	c.begin()
	c.token = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(c.token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// begin has a new controller in the place of the one there is, which has made a round.
func (c *cluster) begin() {
	c.t.Helper()
	s, err := New(Options{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}, Grace: 3 * time.Minute,
		Token:      func(*slog.Logger) string { return "secret" },
		Programmer: c.table,
		Now:        func() time.Time { return time.Unix(c.now.Load(), 0) }, Wait: c.wait, Again: time.Hour,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.end()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = s.Run(ctx) // it ends with ctx alone
	}()
	c.end = func() { cancel(); <-over }
	c.control.Store(s)
	await.True(c.t, "the first round, before time passes", func() bool { return s.Stats().Rounds > 0 })
}

// tick has a round made.
func (c *cluster) tick() {
	s := c.control.Load()
	s.mu.Lock()
	over := s.ask()
	s.mu.Unlock()
	s.await(context.Background(), over)
}

// later lets time pass.
func (c *cluster) later(d time.Duration) { c.now.Add(int64(d / time.Second)) }

func (c *cluster) client(node string) *routehook.Client {
	c.t.Helper()
	k, err := routehook.NewClient(routehook.Options{URL: c.URL, TokenFile: c.token}, node)
	if err != nil {
		c.t.Fatal(err)
	}
	return k
}

// give gives a view of routes "SUBNET HOP" of which the first is the node's own, and returns what was
// refused.
func (c *cluster) give(k *routehook.Client, node string, routes ...string) string {
	c.t.Helper()
	v := routehook.View{SchemaVersion: routehook.Schema, Node: node, Name: "host-" + node, Instance: "i",
		Generation: 1, Lifetime: 900,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for i, r := range routes {
		subnet, hop, _ := strings.Cut(r, " ")
		v.Routes = append(v.Routes, routehook.Route{Subnet: netip.MustParsePrefix(subnet),
			NextHop: netip.MustParseAddr(hop), Node: node, Name: "host-" + node, Own: i == 0})
	}
	a, err := k.Put(context.Background(), v)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, r := range a.Routes {
		if r.State != routehook.Accepted {
			out = append(out, fmt.Sprintf("%v %s", r.Subnet, r.State))
		}
	}
	return strings.Join(out, "\n")
}

func (c *cluster) expect(routes ...string) {
	c.t.Helper()
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if have := slices.Sorted(slices.Values(c.table.have)); !slices.Equal(have, routes) {
		c.t.Errorf("routes %q\nwant   %q", have, routes)
	}
}

const one, two, three = "10.5.1.0/24 192.0.2.1", "10.5.2.0/24 192.0.2.2", "10.5.3.0/24 192.0.2.3"

// Nodes' views become one set: what a node says of itself counts, and a route goes when nobody lists it any
// more.
func TestViewsBecomeOneSet(t *testing.T) {
	c := newCluster(t)
	c.later(time.Hour)
	a, b := c.client("a"), c.client("b")
	if got := c.give(a, "a", one, two); got != "" {
		t.Error(got)
	}
	c.expect(one, two) // of b nothing was heard yet
	c.later(time.Minute)
	moved := "10.5.2.0/24 192.0.2.22"
	if got := c.give(b, "b", moved, one); got != "" {
		t.Error(got)
	}
	c.expect(one, moved) // a has not heard yet
	if got := c.give(a, "a", one, two); got != "10.5.2.0/24 refused" {
		t.Error(got)
	}
	// b's lease ended, and c has its subnet now; b is cut off and still says that it is its own.
	c.later(time.Minute)
	taken := "10.5.2.0/24 192.0.2.3"
	k := c.client("c")
	if got := c.give(k, "c", taken, one); got != "" {
		t.Error(got)
	}
	c.expect(one, taken)
	if got := c.give(b, "b", moved, one); !strings.Contains(got, "refused") {
		t.Errorf("the former owner: %q", got)
	}
	c.expect(one, taken)
	// Nodes a and b are gone; c lists a until its lease is over.
	c.later(16 * time.Minute)
	if got := c.give(k, "c", taken, one); got != "" {
		t.Error(got)
	}
	c.tick()
	c.expect(one, taken)
	if got := c.give(k, "c", taken); got != "" {
		t.Error(got)
	}
	c.expect(one, taken) // two of three nodes are gone together: they may come back
	c.later(4 * time.Minute)
	c.tick()
	c.expect(taken)
}

// A controller that begins anew has the nodes' routes again as soon as each has spoken, and removes none
// before.
func TestControllerBeginsAnew(t *testing.T) {
	c := newCluster(t)
	a, b := c.client("a"), c.client("b")
	c.give(a, "a", one)
	c.give(b, "b", two)
	c.expect(one, two)
	c.begin()
	if got := c.give(a, "a", one); got != "" {
		t.Error(got)
	}
	c.expect(one, two)
	if got := c.give(b, "b", three); got != "" {
		t.Error(got)
	}
	c.later(4 * time.Minute)
	c.tick()
	c.expect(one, three)
}

// What cannot be programmed is the verdict; what is not this controller's to route is refused whole, and
// strangers are not heard.
func TestControllerRefuses(t *testing.T) {
	c := newCluster(t)
	c.table.be(func(p *table) {
		p.faults = map[netip.Prefix]error{netip.MustParsePrefix("10.5.1.0/24"): fmt.Errorf("the table is full")}
	})
	a := c.client("a")
	if got := c.give(a, "a", one, two); got != "10.5.1.0/24 refused" {
		t.Error(got)
	}
	if got := c.give(a, "a", one, "10.6.0.0/24 192.0.2.1"); !strings.Contains(got, "[10.5.0.0/16]") {
		t.Error(got)
	}
	if got := c.give(c.client("z"), "a", one); !strings.Contains(got, "view") {
		t.Error(got)
	}
	if err := os.WriteFile(c.token, []byte("guess\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.give(a, "a", two); !strings.Contains(got, "401") {
		t.Error(got)
	}
	resp, err := http.Get(c.URL + "/v1/routes")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
	c.expect(two)
}

// A round that takes long keeps nobody waiting for long, and others are answered meanwhile: routes are
// pending until a round has found them in place.
func TestPendingUntilItIsSeen(t *testing.T) {
	c := newCluster(t)
	c.wait = time.Millisecond
	c.begin()
	hold := make(chan struct{})
	c.table.be(func(p *table) { p.hold = hold })
	a := c.client("a")
	if got := c.give(a, "a", one); got != "10.5.1.0/24 pending" {
		t.Error(got)
	}
	if resp, err := http.Get(c.URL + "/v1/routes"); err != nil {
		t.Error(err)
	} else {
		_ = resp.Body.Close()
	}
	c.table.be(func(p *table) {
		p.hold, p.faults = nil, map[netip.Prefix]error{
			netip.MustParsePrefix("10.5.1.0/24"): fmt.Errorf("the cloud has it, and shows it not yet: %w", ErrPending)}
	})
	close(hold)
	await.OK(t, "a round that saw it", func() error {
		if got := c.give(a, "a", one); got != "10.5.1.0/24 pending" || c.control.Load().Stats().Rounds < 2 {
			return errors.New(got)
		}
		return nil
	})
	c.table.be(func(p *table) { p.faults = nil })
	await.OK(t, "a round that finds it in place, without anybody's asking", func() error {
		if got := c.give(a, "a", one); got != "" {
			return errors.New(got)
		}
		return nil
	})
	if s := c.control.Load().Stats(); s.Views != 1 || s.Accepted != 1 || s.Pending != 0 || s.Rounds < 2 {
		t.Errorf("%+v", s)
	}
}

// While the place where routes are cannot be looked at, what was found in place stays so, and what is new is
// not called accepted. A view that says the same costs no round.
func TestWhatWasInPlaceStaysSo(t *testing.T) {
	c := newCluster(t)
	a := c.client("a")
	if got := c.give(a, "a", one); got != "" {
		t.Error(got)
	}
	var before int
	c.table.be(func(p *table) { before, p.fails = p.rounds, errors.New("the cloud answers 503") })
	if got := c.give(a, "a", one); got != "" {
		t.Error(got)
	}
	c.table.be(func(p *table) {
		if p.rounds != before {
			t.Errorf("%d rounds for a view that says the same", p.rounds-before)
		}
	})
	if got := c.give(a, "a", one, two); got != "10.5.2.0/24 pending" {
		t.Error(got)
	}
	if s := c.control.Load().Stats(); s.Failed == 0 || s.Fault == "" || s.Accepted != 1 {
		t.Errorf("%+v", s)
	}
	c.table.be(func(p *table) { p.fails = nil })
	await.OK(t, "the cloud is back", func() error {
		if got := c.give(a, "a", one, two); got != "" {
			return errors.New(got)
		}
		return nil
	})
}

// A route that a round is removing, since nobody wanted it when the round began, is not in place for who
// wants it again meanwhile; one that the round leaves alone is.
func TestWantedAgainWhileItIsRemoved(t *testing.T) {
	for name, x := range map[string]struct {
		age  time.Duration // of the controller
		then string        // what a says instead of one while nobody removes anything
		want string
	}{
		"removed":  {time.Hour, two, "10.5.1.0/24 pending"},
		"replaced": {0, "10.5.1.0/24 192.0.2.9", "10.5.1.0/24 pending"},
		"kept":     {0, two, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.wait = time.Millisecond
			c.begin()
			c.later(x.age)
			a := c.client("a")
			await.OK(t, "it is in place", func() error {
				if got := c.give(a, "a", one); got != "" {
					return errors.New(got)
				}
				return nil
			})
			s := c.control.Load()
			s.mu.Lock()
			over := s.ask()
			s.mu.Unlock()
			<-over // no round is to come
			hold, begun := make(chan struct{}), make(chan struct{}, 1)
			c.table.be(func(p *table) { p.hold, p.begun = hold, begun })
			if got := c.give(a, "a", x.then); !strings.Contains(got, "pending") {
				t.Error(got)
			}
			<-begun // the round that does not want it
			if got := c.give(a, "a", one); got != x.want {
				t.Errorf("%q, want %q", got, x.want)
			}
			c.table.be(func(p *table) { p.hold = nil })
			close(hold)
			await.OK(t, "it is in place again", func() error {
				if got := c.give(a, "a", one); got != "" {
					return errors.New(got)
				}
				return nil
			})
		})
	}
}

// Flags that would let strangers change routes, or that say nothing, are refused with what is wrong.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	token, empty := filepath.Join(dir, "token"), filepath.Join(dir, "empty")
	if err := errors.Join(os.WriteFile(token, []byte("secret\nx"), 0o600), os.WriteFile(empty, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want string // a part of the error; "" for none
	}{
		{"--networks 10.5.0.0/16,fd00::/48 --token-file " + token, ""},
		{"", "--networks"},
		{"--networks 10.5.0.0", "--networks"},
		{"--networks 10.5.0.0/16 --token-file " + empty, empty},
		{"--networks 10.5.0.0/16 --token-file " + dir + "/none", "/none"},
		{"--networks 10.5.0.0/16 --listen localhost", "--listen"},
		{"--networks 10.5.0.0/16 --listen 0.0.0.0:1 --token-file " + token, "--client-ca"},
		{"--networks 10.5.0.0/16 --listen 0.0.0.0:1 --cert c --key k", "--client-ca"},
		{"--networks 10.5.0.0/16 --listen 0.0.0.0:1 --cert c --key k --token-file " + token, ""},
		{"--networks 10.5.0.0/16 --listen 0.0.0.0:1 --cert c --key k --client-ca a", ""},
		{"--networks 10.5.0.0/16 --cert c", "--cert needs --key"},
		{"--networks 10.5.0.0/16 --client-ca a", "--client-ca needs --cert and --key"},
	} {
		var s Settings
		fs := flag.NewFlagSet("x", flag.ContinueOnError)
		s.Declare(fs)
		if err := fs.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		o, err := s.Options()
		if err == nil && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		if strings.Contains(c.args, "fd00") && (len(o.Networks) != 2 || o.Token(nil) != "secret") {
			t.Errorf("%+v", o)
		}
	}
}
