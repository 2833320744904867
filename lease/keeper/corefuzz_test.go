package keeper_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
)

// FuzzCore hands a core events in any order, also such as nothing has led to. It must not panic, and every
// state has a name. Package test/sim checks what a core decides.
func FuzzCore(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rng := coreRand(seed)
		subnet := func() lease.Subnets {
			return lease.Subnets{V4: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", 1+rng.IntN(3)))}
		}
		snapshot := func() lease.Snapshot {
			s := lease.Snapshot{ClusterID: []string{"", "c", "d"}[rng.IntN(3)], Revision: rng.Int64N(30)}
			s.Config = [][]byte{nil, []byte("{"), []byte(network), []byte(network)}[rng.IntN(4)]
			for i := range rng.IntN(4) {
				r := lease.Record{Subnets: subnet(), Revision: rng.Int64N(30), Reservation: rng.IntN(4) == 0}
				r.PublicIP = netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + rng.IntN(3))})
				if node := []string{"", "a", "b"}[rng.IntN(3)]; node != "" {
					r.Weft = &lease.Weft{Node: node, State: []string{"s", "elsewhere"}[rng.IntN(2)]}
				}
				if i == 3 {
					s.Bad = append(s.Bad, lease.Rejected{Key: r.Key(), Reason: lease.RejectValue, Revision: r.Revision})
				} else {
					s.Records = append(s.Records, &r)
				}
			}
			return s
		}
		c := newCore(t, func(o *keeper.Options) {
			o.Rand, o.Seed, o.Underlay = coreRand(seed+1), []byte(network), answers{}
			o.Cache = belief.NewCache("/nonexistent", "/net")
		})
		now, call := epoch(), keeper.Call{}
		for range 200 {
			most := []time.Duration{time.Second, time.Minute, 30 * time.Hour}[rng.IntN(3)]
			now = now.Add(time.Duration(rng.Int64N(int64(most))))
			s, read := snapshot(), snapshot()
			m := lease.Message{To: "a", From: "x", Node: []string{"a", "b"}[rng.IntN(2)], Asks: rng.IntN(2) == 0}
			m.Subnets, m.Revision = subnet().Key(), rng.Int64N(30)
			if !m.Asks {
				m.Answers = "process"
			}
			result := keeper.Result{Number: call.Number, Snapshot: read, Revision: read.Revision}
			stray := keeper.Result{Number: rng.Uint64N(50), Err: lease.ErrConflict}
			events := []keeper.Event{
				keeper.Begin{}, keeper.Tick{}, keeper.News{}, keeper.News{Snapshot: &s, Watched: true},
				result, result, result, stray, keeper.Result{Number: call.Number, Err: errors.New("no answer")},
				keeper.Saved{Written: true}, keeper.Saved{Err: errors.New("full")},
				keeper.News{Lost: errors.New("no endpoint answers"), Watched: true},
				keeper.News{Answered: rng.IntN(4), Proven: true},
				keeper.News{Messages: slices.Repeat([]lease.Message{m}, 100)},
				keeper.News{Local: ptr(local("192.0.2.2"))},
			}
			if rng.IntN(60) == 0 {
				events = []keeper.Event{keeper.Stop{}}
			}
			for _, effect := range c.Step(now, events[rng.IntN(len(events))]) {
				if asked, ok := effect.(keeper.Call); ok {
					call = asked
				}
			}
			if got := c.Status(now).State.String(); got == "invalid" {
				t.Fatal("no state")
			}
		}
	})
}
