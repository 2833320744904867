package table

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/routing/routecontrol"
)

// route reads "DST TARGET [foreign] [down] [busy]".
func route(s string) Route {
	f := strings.Fields(s)
	return Route{Dst: netip.MustParsePrefix(f[0]), Target: f[1], Ours: !slices.Contains(f, "foreign"),
		Down: slices.Contains(f, "down"), Busy: slices.Contains(f, "busy")}
}

func routes(s string) (out []Route) {
	for x := range strings.SplitSeq(s, ",") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, route(x))
		}
	}
	return out
}

func wants(s string) (out []Want) {
	for _, r := range routes(s) {
		out = append(out, Want{r.Dst, strings.Trim(r.Target, "-")})
	}
	return out
}

func (p Plan) String() string {
	var out []string
	for _, w := range p.Create {
		out = append(out, fmt.Sprint("+", w.Dst, " ", w.Target))
	}
	for _, r := range p.Replace {
		out = append(out, fmt.Sprint("=", r.Want.Dst, " ", r.Want.Target, " for ", r.Old[0].Target))
	}
	for _, r := range p.Delete {
		out = append(out, fmt.Sprint("-", r.Dst, " ", r.Target))
	}
	return strings.Join(out, ", ")
}

func TestMake(t *testing.T) {
	for _, c := range []struct {
		name, have, want, plan string
		keep                   bool
	}{
		{"an empty table, in the order of destinations", "", "10.5.2.0/24 b, fd00:5::/64 a, 10.5.1.0/24 a",
			"+10.5.1.0/24 a, +10.5.2.0/24 b, +fd00:5::/64 a", false},
		{"nothing to do", "10.5.1.0/24 a", "10.5.1.0/24 a", "", false},
		{"a subnet moved", "10.5.1.0/24 a", "10.5.1.0/24 b", "=10.5.1.0/24 b for a", false},
		{"a node left", "10.5.1.0/24 a, 10.5.2.0/24 b", "10.5.1.0/24 a", "-10.5.2.0/24 b", false},
		{"a node left, and nothing is removed yet", "10.5.1.0/24 a, 10.5.2.0/24 b", "10.5.1.0/24 a", "", true},
		{"somebody else's is left alone", "0.0.0.0/0 igw foreign, 10.5.9.0/24 x foreign", "", "", false},
		{"somebody else's is not shadowed", "10.5.1.0/24 x foreign", "10.5.1.0/24 a", "", false},
		{"whose target is not known stays", "10.5.1.0/24 a", "10.5.1.0/24 -", "", false},
		{"two of ours share packets", "10.5.1.0/24 b, 10.5.1.0/24 a", "10.5.1.0/24 a", "-10.5.1.0/24 b", false},
		{"the cloud is at work on it", "10.5.1.0/24 a busy, 10.5.2.0/24 a busy", "10.5.1.0/24 b", "", false},
		{"two of ours, both wrong", "10.5.1.0/24 b, 10.5.1.0/24 c", "10.5.1.0/24 a", "=10.5.1.0/24 a for b", false},
	} {
		if got := Make(routes(c.have), wants(c.want), c.keep).String(); got != c.plan {
			t.Errorf("%s: %q, want %q", c.name, got, c.plan)
		}
	}
}

func TestJudge(t *testing.T) {
	dst := netip.MustParsePrefix("10.5.1.0/24")
	for _, c := range []struct {
		name, have, want string
		reason           error
		fault            string
		pending          bool
	}{
		{"in place", "10.5.1.0/24 a", "10.5.1.0/24 a", nil, "", false},
		{"in place although the answer was lost", "10.5.1.0/24 a", "10.5.1.0/24 a", errors.New("connection reset"),
			"", false},
		{"shown late", "", "10.5.1.0/24 a", nil, "shows", true},
		{"still the old one", "10.5.1.0/24 b", "10.5.1.0/24 a", nil, "shows", true},
		{"refused", "", "10.5.1.0/24 a", ErrFull, "table", false},
		{"dropped", "10.5.1.0/24 vm-a down", "10.5.1.0/24 vm-a", nil, "vm-a", false},
		{"on its way", "10.5.1.0/24 a busy", "10.5.1.0/24 a", nil, "still", true},
		{"the old one is on its way", "10.5.1.0/24 b busy", "10.5.1.0/24 a", ErrFull, "still", true},
		{"in the way", "10.5.1.0/24 igw foreign", "10.5.1.0/24 a", nil, "igw", false},
		{"a part is elsewhere", "10.5.1.0/24 a, 10.5.1.128/25 x foreign", "10.5.1.0/24 a", nil,
			"10.5.1.128/25", false},
		{"a wider one of somebody else's", "10.5.1.0/24 a, 10.5.0.0/16 x foreign", "10.5.1.0/24 a", nil, "", false},
		{"without a target others say why", "", "10.5.1.0/24 -", nil, "", false},
	} {
		reasons := map[netip.Prefix]error{}
		if c.reason != nil {
			reasons[dst] = c.reason
		}
		err := Judge(routes(c.have), wants(c.want), reasons)[dst]
		if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) ||
			errors.Is(err, routecontrol.ErrPending) != c.pending {
			t.Errorf("%s: %v, want %q, pending %v", c.name, err, c.fault, c.pending)
		}
	}
}

// cloud is a Changer with room for so many routes, that asks for fewer calls after some.
type cloud struct {
	room, calls int
	have        []string
}

func (c *cloud) Create(_ context.Context, w Want) error {
	if c.calls--; c.calls < 0 {
		return fmt.Errorf("503: %w", ErrSlow)
	}
	if len(c.have) >= c.room {
		return fmt.Errorf("RouteLimitExceeded: %w", ErrFull)
	}
	c.have = append(c.have, w.Dst.String())
	return nil
}

func (c *cloud) Replace(context.Context, Replacement) error { return nil }

func (c *cloud) Delete(_ context.Context, r Route) error {
	if c.calls--; c.calls < 0 {
		return fmt.Errorf("503: %w", ErrSlow)
	}
	c.have = slices.DeleteFunc(c.have, func(s string) bool { return s == r.Dst.String() })
	return nil
}

// A full table is asked once, and once more after something was deleted.
func TestApplyToAFullTable(t *testing.T) {
	c := &cloud{room: 2, calls: 100, have: []string{"10.5.8.0/24", "10.5.9.0/24"}}
	p := Plan{Create: wants("10.5.1.0/24 a, 10.5.2.0/24 a, 10.5.3.0/24 a"), Delete: routes("10.5.9.0/24 b")}
	reasons := Apply(context.Background(), Single{c}, p)
	if !slices.Equal(c.have, []string{"10.5.8.0/24", "10.5.1.0/24"}) {
		t.Errorf("%q", c.have)
	}
	if len(reasons) != 2 || !errors.Is(reasons[p.Create[1].Dst], ErrFull) ||
		!errors.Is(reasons[p.Create[2].Dst], ErrFull) ||
		errors.Is(reasons[p.Create[2].Dst], routecontrol.ErrPending) {
		t.Errorf("%v", reasons)
	}
	if used := 100 - c.calls; used != 4 {
		// one that found it full, one deleted, one with room, one that found it full
		t.Errorf("%d calls", used)
	}
}

// Once the cloud asks for fewer calls there is none in this round, and what is left is pending.
func TestApplySlowsDown(t *testing.T) {
	c := &cloud{room: 100, calls: 1}
	p := Plan{Create: wants("10.5.1.0/24 a, 10.5.2.0/24 a, 10.5.3.0/24 a"), Delete: routes("10.5.9.0/24 b")}
	reasons := Apply(context.Background(), Single{c}, p)
	if len(c.have) != 1 || c.calls != -1 || len(reasons) != 3 {
		t.Errorf("%q, %d, %v", c.have, c.calls, reasons)
	}
	for _, err := range reasons {
		if !errors.Is(err, routecontrol.ErrPending) || !errors.Is(err, ErrSlow) {
			t.Error(err)
		}
	}
}

// dead is a cloud of which each call but one is an outage.
type dead struct{ calls, works int }

func (d *dead) call() error {
	if d.calls++; d.calls == d.works {
		return nil
	}
	return Options{}.Said("Call", "x:Call", Failed, errors.New("dial tcp: i/o timeout"))
}

func (d *dead) Create(context.Context, Want) error { return d.call() }

func (d *dead) Replace(context.Context, Replacement) error { return d.call() }

func (d *dead) Delete(context.Context, Route) error { return d.call() }

// A cloud that does not answer is asked twice in a row, and what it did not do is pending: nobody has to mend
// anything.
func TestApplyToACloudThatDoesNotAnswer(t *testing.T) {
	for works, want := range map[int]int{0: 2, 1: 3, 2: 4} {
		d := &dead{works: works}
		reasons := Apply(context.Background(), Single{d}, Plan{
			Create: wants("10.5.1.0/24 a, 10.5.2.0/24 a, 10.5.3.0/24 a"),
			Delete: routes("10.5.9.0/24 b, 10.5.10.0/24 b")})
		if d.calls != want || len(reasons) != 5-min(works, 1) {
			t.Errorf("call %d works: %d calls, want %d: %v", works, d.calls, want, reasons)
		}
		for dst, err := range reasons {
			if !errors.Is(err, routecontrol.ErrPending) || err.Error() != "x:Call: dial tcp: i/o timeout" {
				t.Error(dst, err)
			}
		}
	}
}

// After some time no further call is begun: the plan is of long ago, and the next round makes another one.
func TestApplyEnds(t *testing.T) {
	c := &cloud{room: 100, calls: 100}
	p := Plan{Create: wants("10.5.1.0/24 a"), Delete: routes("10.5.9.0/24 b")}
	a := applier{reasons: map[netip.Prefix]error{}, until: time.Now()}
	reasons := a.apply(context.Background(), Single{c}, p)
	if c.calls != 100 || len(reasons) != 2 || !errors.Is(reasons[p.Create[0].Dst], routecontrol.ErrPending) ||
		!errors.Is(reasons[p.Delete[0].Dst], routecontrol.ErrPending) {
		t.Errorf("%d calls left, %v", c.calls, reasons)
	}
}
