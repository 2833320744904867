package keeper_test

import (
	"testing"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// TestNobodyKnowsSinceWhen has a store go back to where a copy's record stands in the place of ours, so that
// neither knows any more since when it has the subnet: who serves is not silent to who does not, nor to an
// older weft, which does not say; to who serves as well, or whose record the store has, it is.
func TestNobodyKnowsSinceWhen(t *testing.T) {
	question := func(revision int64, serves bool) lease.Message {
		return lease.Message{To: "a", From: "copy", Node: "a", Asks: true, Subnets: "10.244.5.0-24",
			Revision: revision, Serves: serves}
	}
	lives := lease.Message{To: "a", From: "copy", Node: "a", Answers: "process", Subnets: "10.244.5.0-24"}
	for _, tt := range []struct {
		name     string
		told     []lease.Message // before the question
		question lease.Message
		want     int // answers
	}{
		{"it serves, the copy does not", nil, question(0, false), 1},
		{"both serve", nil, question(0, true), 0},
		{"the store has the copy's record", nil, question(5, false), 0},
		{"the copy is known to live", []lease.Message{lives}, question(0, false), 0},
		{"another who waits stands before",
			[]lease.Message{{To: "a", From: "other", Node: "a", Asks: true, Subnets: "10.244.5.0-24", Serves: true}},
			question(0, false), 1},
		{"a copy of another node, about another subnet", nil,
			lease.Message{To: "a", From: "b", Node: "b", Asks: true, Subnets: "10.244.9.0-24"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, now := newCore(t, nil), epoch()
			full := func(revision int64, r lease.Record) lease.Snapshot {
				return lease.Snapshot{ClusterID: "c", Revision: revision, Config: []byte(network),
					Records: leasetest.Pointers(r)}
			}
			first, back := full(7, created(t, "10.244.5.0/24", 7)),
				full(5, leasetest.Record(t, "10.244.5.0/24", "a", "192.0.2.9", 5))
			var asked []lease.Message
			answers, store := 0, first
			var do func(e keeper.Event)
			do = func(e keeper.Event) {
				for _, f := range c.Step(now, e) {
					call, ok := f.(keeper.Call)
					if !ok {
						continue
					}
					r := keeper.Result{Number: call.Number, Revision: 8}
					switch op := call.Operation.(type) {
					case keeper.ReadStore:
						r.Snapshot = store
					case keeper.SendMessage:
						if op.Message.Asks {
							asked = append(asked, op.Message)
						} else {
							answers++
						}
					}
					do(r)
				}
			}
			tick := func(after time.Duration) {
				now = now.Add(after)
				do(keeper.Tick{})
			}
			do(keeper.Begin{})
			do(keeper.News{Snapshot: &first, Watched: true})
			if st := c.Status(now).State; st != lease.Held {
				t.Fatalf("before: %s", st)
			}
			now, store = now.Add(time.Minute), back
			do(keeper.News{Snapshot: &back, Watched: true})
			tick(0)
			if len(asked) != 1 || asked[0].Revision != 0 || !asked[0].Serves {
				t.Fatalf("asked with %+v", asked)
			}
			for _, m := range tt.told {
				do(keeper.News{Messages: []lease.Message{m}})
			}
			do(keeper.News{Messages: []lease.Message{tt.question}})
			tick(100 * time.Millisecond)
			if answers != tt.want {
				t.Errorf("%d answers, want %d", answers, tt.want)
			}
			if len(tt.told) == 1 && tt.told[0].Answers != "" { // then we say that we do not serve
				for range 100 {
					if len(asked) > 1 {
						break
					}
					tick(100 * time.Millisecond)
				}
				if n := len(asked); n < 2 || asked[n-1].Serves {
					t.Errorf("asked with %+v", asked)
				}
			}
		})
	}
}
