package routecontrol

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/routing/routehook"
)

// table is a Programmer that notes what it is given, and cannot make some routes.
type table struct {
	have   []string
	faults map[netip.Prefix]error
}

func (p *table) Program(want []routehook.Route, keep bool) map[netip.Prefix]error {
	if !keep {
		p.have = nil
	}
	for _, r := range want {
		if s := fmt.Sprint(r.Subnet, " ", r.NextHop); p.faults[r.Subnet] == nil && !slices.Contains(p.have, s) {
			p.have = append(p.have, s)
		}
	}
	return p.faults
}

type cluster struct {
	t     *testing.T
	now   time.Time
	table *table
	*httptest.Server
	token string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, now: time.Unix(1_800_000_000, 0), table: &table{}}
	c.Server = httptest.NewServer(nil)
	t.Cleanup(c.Close)
	c.begin()
	c.token = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(c.token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// begin has a new controller in the place of the one there is.
func (c *cluster) begin() {
	c.t.Helper()
	s, err := New(Options{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}, Token: "secret", Grace: 3 * time.Minute, Programmer: c.table,
		Now: func() time.Time { return c.now },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.Config.Handler = s
}

func (c *cluster) tick() { c.Config.Handler.(*Controller).Tick() }

func (c *cluster) client(node string) *routehook.Client {
	c.t.Helper()
	k, err := routehook.NewClient(routehook.Options{URL: c.URL, TokenFile: c.token}, node)
	if err != nil {
		c.t.Fatal(err)
	}
	return k
}

// give gives a view of routes "SUBNET HOP" of which the first is the node's own, and returns what was refused.
func (c *cluster) give(k *routehook.Client, node string, routes ...string) string {
	c.t.Helper()
	v := routehook.View{SchemaVersion: routehook.Schema, Node: node, Name: "host-" + node, Instance: "i", Generation: 1, Lifetime: 900,
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for i, r := range routes {
		subnet, hop, _ := strings.Cut(r, " ")
		v.Routes = append(v.Routes, routehook.Route{Subnet: netip.MustParsePrefix(subnet), NextHop: netip.MustParseAddr(hop), Node: node, Name: "host-" + node, Own: i == 0})
	}
	a, err := k.Put(context.Background(), v)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, r := range a.Routes {
		if r.State != routehook.Accepted {
			out = append(out, fmt.Sprintf("%v %s: %s", r.Subnet, r.State, r.Reason))
		}
	}
	return strings.Join(out, "\n")
}

func (c *cluster) expect(routes ...string) {
	c.t.Helper()
	if have := slices.Sorted(slices.Values(c.table.have)); !slices.Equal(have, routes) {
		c.t.Errorf("routes %q\nwant   %q", have, routes)
	}
}

const one, two, three = "10.5.1.0/24 192.0.2.1", "10.5.2.0/24 192.0.2.2", "10.5.3.0/24 192.0.2.3"

// Nodes' views become one set: what a node says of itself counts, and a route goes when nobody lists it any more.
func TestViewsBecomeOneSet(t *testing.T) {
	c := newCluster(t)
	c.now = c.now.Add(time.Hour)
	a, b := c.client("a"), c.client("b")
	if got := c.give(a, "a", one, two); got != "" {
		t.Error(got)
	}
	c.expect(one, two) // of b nothing was heard yet
	c.now = c.now.Add(time.Minute)
	moved := "10.5.2.0/24 192.0.2.22"
	if got := c.give(b, "b", moved, one); got != "" {
		t.Error(got)
	}
	c.expect(one, moved) // a has not heard yet
	if got := c.give(a, "a", one, two); got != `10.5.2.0/24 refused: 10.5.2.0/24 is routed to 192.0.2.22, which node host-b ("b") says is its own` {
		t.Error(got)
	}
	// b's lease ended, and c has its subnet now; b is cut off and still says that it is its own.
	c.now = c.now.Add(time.Minute)
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
	c.now = c.now.Add(16 * time.Minute)
	if got := c.give(k, "c", taken, one); got != "" {
		t.Error(got)
	}
	c.tick()
	c.expect(one, taken)
	if got := c.give(k, "c", taken); got != "" {
		t.Error(got)
	}
	c.expect(taken)
	c.now = c.now.Add(16 * time.Minute)
	c.tick()
	c.expect()
}

// A controller that begins anew has the nodes' routes again as soon as each has spoken, and removes none before.
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
	c.now = c.now.Add(4 * time.Minute)
	c.tick()
	c.expect(one, three)
}

// What cannot be programmed is the verdict; what is not this controller's to route is refused whole, and strangers are not heard.
func TestControllerRefuses(t *testing.T) {
	c := newCluster(t)
	c.table.faults = map[netip.Prefix]error{netip.MustParsePrefix("10.5.1.0/24"): fmt.Errorf("the table is full")}
	a := c.client("a")
	if got := c.give(a, "a", one, two); got != "10.5.1.0/24 refused: the table is full" {
		t.Error(got)
	}
	if got := c.give(a, "a", one, "10.6.0.0/24 192.0.2.1"); !strings.Contains(got, "in none of this controller's networks [10.5.0.0/16]") {
		t.Error(got)
	}
	if got := c.give(c.client("z"), "a", one); !strings.Contains(got, `the view is node "a"'s, and the URL says "z"`) {
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
