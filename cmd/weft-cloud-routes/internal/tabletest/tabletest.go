// Package tabletest is what the tests of all clouds do: make a round, and compare what is said of each route.
package tabletest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
	"weft/routing/routehook"
)

// Watch has what a Programmer told.
type Watch struct {
	Results map[string]int // "CALL RESULT" of calls
	Sizes   map[string]int // "TABLE FAMILY"
}

// Options are those of a network in both families, 10.5.0.0/16 and fd00:5::/48, whose counts come to w.
func (w *Watch) Options() table.Options {
	w.Results, w.Sizes = map[string]int{}, map[string]int{}
	return table.Options{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.5.0.0/16"), netip.MustParsePrefix("fd00:5::/48")},
		Logger:   slog.New(slog.DiscardHandler),
		Called:   func(call, result string) { w.Results[call+" "+result]++ },
		Sized: func(tables []table.Table) {
			for _, t := range tables {
				w.Sizes[t.ID+" ipv4"], w.Sizes[t.ID+" ipv6"] = t.IPv4, t.IPv6
			}
		},
		Backoff: time.Millisecond,
	}
}

// Routes reads "SUBNET HOP, ...".
func Routes(s string) (out []routehook.Route) {
	for x := range strings.SplitSeq(s, ", ") {
		if subnet, hop, ok := strings.Cut(x, " "); ok {
			out = append(out, routehook.Route{Subnet: netip.MustParsePrefix(subnet),
				NextHop: netip.MustParseAddr(hop)})
		}
	}
	return out
}

// Round makes one, and compares what is said of each route with faults: "SUBNET a part of the reason", with
// "pending" behind it for those that are.
func Round(t *testing.T, p routecontrol.Programmer, routes string, keep bool, faults ...string) {
	t.Helper()
	got, err := p.Program(context.Background(), Routes(routes), keep)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(faults) {
		t.Errorf("faults %v, want %q", got, faults)
	}
	for _, f := range faults {
		subnet, part, _ := strings.Cut(f, " ")
		part, pending := strings.CutSuffix(part, " pending")
		err := got[netip.MustParsePrefix(subnet)]
		if err == nil || !strings.Contains(err.Error(), part) ||
			errors.Is(err, routecontrol.ErrPending) != pending {
			t.Errorf("%s: %v, want %q, pending %v", subnet, err, part, pending)
		}
	}
}
