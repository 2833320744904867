package table

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/routing/routecontrol"
	"weft/routing/routehook"
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
		out = append(out, fmt.Sprint("=", r.Want.Dst, " ", r.Want.Target, " for ", r.Old.Target))
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

// cloud is a View with one table, which has room for so many routes. It asks for patience, does not answer,
// or takes long, after some calls.
type cloud struct {
	room  int
	have  []Route
	calls []string
	// keeps says that a route that is replaced stays until it is deleted, as routes with names do.
	keeps bool
	fault map[int]error // of the call of that number
	long  time.Duration // of each call
}

func (c *cloud) Target(_ context.Context, hop netip.Addr) (string, error) {
	if hop.Is6() {
		return "", errors.New("no instance")
	}
	return hop.String(), nil
}

func (c *cloud) Tables(context.Context) ([]Table, error) {
	return []Table{{ID: "t", Have: slices.Clone(c.have)}}, nil
}

func (c *cloud) Change(ctx context.Context, t Table, p Plan) map[netip.Prefix]error {
	return Options{Logger: slog.New(slog.DiscardHandler)}.Apply(ctx, t, c, p)
}

func (c *cloud) call(what string, dst netip.Prefix) error {
	c.calls = append(c.calls, what+dst.String())
	time.Sleep(c.long)
	return c.fault[len(c.calls)]
}

func (c *cloud) Create(_ context.Context, w Want) error {
	if err := c.call("+", w.Dst); err != nil {
		return err
	}
	if len(c.have) >= c.room {
		return fmt.Errorf("RouteLimitExceeded: %w", ErrFull)
	}
	c.have = append(c.have, Route{Dst: w.Dst, Target: w.Target, Ours: true})
	return nil
}

func (c *cloud) Replace(ctx context.Context, r Replacement) error {
	if !c.keeps {
		if err := c.Delete(ctx, r.Old); err != nil {
			return err
		}
	}
	return c.Create(ctx, r.Want)
}

func (c *cloud) Delete(_ context.Context, r Route) error {
	if err := c.call("-", r.Dst); err != nil {
		return err
	}
	c.have = slices.DeleteFunc(c.have, func(x Route) bool { return x.Dst == r.Dst && x.Target == r.Target })
	return nil
}

// A round makes as few calls as it can, and says of each route what became of it.
func TestRound(t *testing.T) {
	slow, down := fmt.Errorf("503: %w", ErrSlow), fmt.Errorf("i/o timeout: %w", ErrDown)
	for _, c := range []struct {
		name               string
		cloud              cloud
		have, want         string // want has next hops
		calls              string
		refused, isPending []string
	}{
		{"a full table is asked once, and once more after something was deleted", cloud{room: 2},
			"10.5.8.0/24 b, 10.5.9.0/24 b foreign", "10.5.1.0/24 1.1.1.1, 10.5.2.0/24 1.1.1.1, 10.5.3.0/24 1.1.1.1",
			"+10.5.1.0/24 -10.5.8.0/24 +10.5.1.0/24 +10.5.2.0/24", []string{"10.5.2.0/24", "10.5.3.0/24"}, nil},
		{"a full table of which nothing is deleted is asked once", cloud{room: 0}, "",
			"10.5.1.0/24 1.1.1.1, 10.5.2.0/24 1.1.1.1", "+10.5.1.0/24", []string{"10.5.1.0/24", "10.5.2.0/24"}, nil},
		{"where routes have names the new one is there before the old one goes", cloud{room: 9, keeps: true},
			"10.5.1.0/24 b", "10.5.1.0/24 1.1.1.1", "+10.5.1.0/24 -10.5.1.0/24", nil, nil},
		{"once it asks for patience there is no further call",
			cloud{room: 9, fault: map[int]error{2: slow}}, "10.5.9.0/24 b",
			"10.5.1.0/24 1.1.1.1, 10.5.2.0/24 1.1.1.1, 10.5.3.0/24 1.1.1.1", "+10.5.1.0/24 +10.5.2.0/24", nil,
			[]string{"10.5.2.0/24", "10.5.3.0/24", "10.5.9.0/24"}},
		{"once it did not answer two calls in a row there is none",
			cloud{room: 9, fault: map[int]error{1: down, 3: down, 4: down}}, "10.5.8.0/24 b, 10.5.9.0/24 b",
			"10.5.1.0/24 1.1.1.1, 10.5.2.0/24 1.1.1.1, 10.5.3.0/24 1.1.1.1",
			"+10.5.1.0/24 +10.5.2.0/24 +10.5.3.0/24 -10.5.8.0/24", nil,
			[]string{"10.5.1.0/24", "10.5.3.0/24", "10.5.8.0/24", "10.5.9.0/24"}},
		{"after some time the plan is of long ago", cloud{room: 9, long: applyAtMost}, "10.5.9.0/24 b",
			"10.5.1.0/24 1.1.1.1", "+10.5.1.0/24", nil, []string{"10.5.9.0/24"}},
		{"a route to all of a network is nobody's subnet", cloud{room: 9}, "10.5.0.0/16 b",
			"10.5.0.0/16 1.1.1.1", "", []string{"10.5.0.0/16"}, nil},
		{"without a target what there is stays", cloud{room: 9}, "10.5.1.0/24 b", "10.5.1.0/24 ::1", "",
			[]string{"10.5.1.0/24"}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := c.cloud
			v.have = routes(c.have)
			var want []routehook.Route
			for _, r := range routes(c.want) {
				want = append(want, routehook.Route{Subnet: r.Dst, NextHop: netip.MustParseAddr(r.Target)})
			}
			p := Programmer{Options{Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16")}},
				func(context.Context) (View, error) { return &v, nil }}
			faults, err := p.Program(t.Context(), want, false)
			if got := strings.Join(v.calls, " "); err != nil || got != c.calls {
				t.Errorf("%s: %v, calls %q, want %q", c.name, err, got, c.calls)
			}
			var refused, pending []string
			for _, dst := range slices.SortedFunc(maps.Keys(faults), netip.Prefix.Compare) {
				if errors.Is(faults[dst], routecontrol.ErrPending) {
					pending = append(pending, dst.String())
				} else {
					refused = append(refused, dst.String())
				}
			}
			if !slices.Equal(refused, c.refused) || !slices.Equal(pending, c.isPending) {
				t.Errorf("%s: %v, want %q refused and %q pending", c.name, faults, c.refused, c.isPending)
			}
		})
	}
}
