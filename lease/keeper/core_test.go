package keeper_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// epoch is when the tables' clocks begin. Nothing here waits, and nothing runs beside the test.
func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// coreRand draws the same numbers each time.
func coreRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(1, seed)) }

func newCore(t testing.TB, change func(*keeper.Options)) *keeper.Core {
	t.Helper()
	o := keeper.Options{Node: "a", State: "s", Config: leasetest.Config(t, network), Local: local("192.0.2.1"),
		Rand: coreRand(1)}
	if change != nil {
		change(&o)
	}
	c, err := keeper.NewCore(o, "process", epoch())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answers is an underlay in name: a core asks for it, and never calls it.
type answers struct{ keeper.Underlay }

// describe is one word or a few for each effect, without the lines of the log, and the last Wait. The cache
// is left out too where it says what it said before: what nothing has changed in, Cache does not write.
func describe(effects []keeper.Effect, now time.Time, cache *string) string {
	var out []string
	var wait string
	for _, f := range effects {
		switch f := f.(type) {
		case keeper.Listen:
			out = append(out, "listen "+f.Node)
		case keeper.Watch:
			out = append(out, "watch")
		case keeper.Call:
			out, wait = append(out, describeOperation(f.Operation)), ""
		case keeper.AskUnderlay:
			out = append(out, fmt.Sprintf("ask %s round %d", f.Attrs.Address(), f.Round))
		case keeper.SaveCache:
			save := fmt.Sprintf("save %s at %d and %d", f.Cached.Own.Subnets, f.Cached.Own.Revision,
				len(f.Cached.Memory.Peers))
			if save != *cache {
				out, *cache = append(out, save), save
			}
		case keeper.Publish:
			out = append(out, fmt.Sprintf("publish %s and %d", f.Set.Own.Subnets, len(f.Set.Peers)))
		case keeper.Wait:
			wait = "wait " + f.Until.Sub(now).Round(time.Second).String()
		case keeper.Log:
		}
	}
	if wait != "" {
		out = append(out, wait)
	}
	return strings.Join(out, "; ")
}

func describeOperation(op keeper.Operation) string {
	switch op := op.(type) {
	case keeper.ReadStore:
		return "read"
	case keeper.WriteRecord:
		return fmt.Sprintf("write %s at %d", op.Subnets, op.IfRevision)
	case keeper.ReplaceRecord:
		return fmt.Sprintf("write %s instead of %s at %d", op.Subnets, op.Old, op.OldRevision)
	case keeper.DeleteRecord:
		return fmt.Sprintf("delete %s at %d", op.Subnets, op.IfRevision)
	case keeper.ReadRemaining:
		return "remaining " + op.Subnets.String()
	case keeper.WriteConfig:
		return "write config"
	case keeper.SendMessage:
		if op.Message.Asks {
			return "ask " + op.Message.To
		}
		return "answer " + op.Message.To
	}
	return "invalid"
}

// TestCoreSteps tells a core what happens, and wants of each event exactly these effects.
func TestCoreSteps(t *testing.T) {
	const ours = "10.244.5.0/24"
	full := func(revision int64, records ...lease.Record) lease.Snapshot {
		return lease.Snapshot{ClusterID: "c", Revision: revision, Config: []byte(network),
			Records: leasetest.Pointers(records...)}
	}
	seen := func(s lease.Snapshot) keeper.Event { return keeper.News{Snapshot: &s, Watched: true} }
	mine := leasetest.Record(t, ours, "a", "192.0.2.1", 7)
	mine.Weft.State = "s"
	mine.Expires = epoch().Add(23 * time.Hour)
	theirs := leasetest.Record(t, ours, "b", "192.0.2.2", 9)
	theirs.Expires = epoch().Add(24 * time.Hour)
	renewed := theirs
	renewed.Revision = 10
	another := full(9, theirs)
	another.ClusterID = "d"
	peer := leasetest.Record(t, "10.244.9.0/24", "c", "192.0.2.3", 3)
	cached := &belief.Cached{Own: mine, Memory: belief.Memory{ClusterID: "c", Revision: 7,
		Config: []byte(network)}}
	outage := errors.New("no endpoint answers")
	const rejoin = "publish 10.244.5.0/24 and 0; save 10.244.5.0/24 at 8 and 1; "
	copied := leasetest.Record(t, ours, "a", "192.0.2.9", 9)
	moved := leasetest.Record(t, "10.244.6.0/24", "a", "192.0.2.8", 10)
	type step struct {
		after time.Duration
		event keeper.Event
		want  string
	}
	// held leads to a lease that is held, from the record that the store has.
	held := []step{
		{0, keeper.Begin{}, "listen a; watch; wait 15s"},
		{0, seen(full(7, mine)), "read"},
		{0, keeper.Result{Number: 1, Snapshot: full(7, mine)}, "write 10.244.5.0/24 at 7"},
		{0, keeper.Result{Number: 2, Revision: 8}, rejoin + "wait 5m0s"},
	}
	asks := func(who string) lease.Message {
		return lease.Message{To: "a", From: who, Node: "a", Asks: true, Subnets: "10.244.5.0-24"}
	}
	mine8 := mine
	mine8.Revision, mine8.Expires = 8, epoch().Add(lease.TTL)
	elsewhere := created(t, ours, 9)
	elsewhere.Attrs = local("192.0.2.7").Signed("a", "s").Attrs
	tests := []struct {
		name   string
		change func(*keeper.Options)
		steps  []step
		state  lease.State
	}{
		{"the store has our record", nil, held, lease.Held},
		{"a first subnet is created, read again, and handed out then", nil, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{0, seen(full(1)), "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(1)}, "write 10.244.100.0/24 at 0"},
			{0, keeper.Result{Number: 2, Revision: 2}, "wait 0s"},
			{0, keeper.Tick{}, "read"},
			{0, keeper.Result{Number: 3, Snapshot: full(2, created(t, "10.244.100.0/24", 2))},
				"publish 10.244.100.0/24 and 0; save 10.244.100.0/24 at 2 and 1; wait 5m0s"},
		}, lease.Held},
		{"who created an overlapping record later yields", nil, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{15 * time.Second, keeper.Tick{}, "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(1)}, "write 10.244.100.0/24 at 0"},
			{0, keeper.Result{Number: 2, Revision: 3}, "wait 0s"},
			{0, keeper.Tick{}, "read"},
			{0, keeper.Result{Number: 3, Snapshot: full(3, leasetest.Record(t, "10.244.100.0/23", "b", "192.0.2.2", 2),
				created(t, "10.244.100.0/24", 3))}, "delete 10.244.100.0/24 at 3"},
			{0, keeper.Result{Number: 4}, "publish none and 0; save none at 0 and 2; wait 0s"},
		}, lease.Acquiring},
		{"another has our address: what is there to wait for is said", nil, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{15 * time.Second, keeper.Tick{}, "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(4, leasetest.Record(t, "10.244.6.0/24", "b", "192.0.2.1", 4))},
				"remaining 10.244.6.0/24"},
			{0, keeper.Result{Number: 2, Remaining: time.Hour}, "publish none and 0; save none at 0 and 1; wait 1s"},
		}, lease.Acquiring},
		{"a cached state is served at once, and its peers too", func(o *keeper.Options) {
			o.Cached = cached
		}, []step{
			{0, keeper.Begin{}, "listen a; watch; publish 10.244.5.0/24 and 0; wait 15s"},
			{time.Second, keeper.News{Watched: true, Lost: outage}, "read"},
			{0, keeper.Result{Number: 1, Err: outage}, "wait 1s"},
		}, lease.Unconfirmed},
		{"what was deleted is put back", nil, append(held[:len(held):len(held)],
			step{time.Hour, seen(full(9)), "write 10.244.5.0/24 at 0"},
			step{0, keeper.Result{Number: 3, Revision: 10}, "save 10.244.5.0/24 at 10 and 1; wait 1s"},
		), lease.Held},
		{"a renewal that the store does not take: its time runs out, and we serve on", nil,
			append(held[:len(held):len(held)],
				step{23 * time.Hour, keeper.Tick{}, "write 10.244.5.0/24 at 8"},
				step{0, keeper.Result{Number: 3, Err: outage}, "wait 1s"},
				step{2 * time.Hour, keeper.Tick{}, "read"},
				step{0, keeper.Result{Number: 4, Err: outage}, "wait 2s"},
			), lease.Expired},
		{"a living node's record stands in the place of ours: nothing is written", nil,
			append(held[:len(held):len(held)],
				step{time.Hour, seen(full(9, theirs)), "ask b"},
				step{0, keeper.Result{Number: 3}, "wait 2s"},
				step{time.Second, keeper.News{Messages: []lease.Message{
					{To: "a", From: "other", Node: "b", Answers: "process", Subnets: "10.244.5.0-24", Revision: 9}}},
					"wait 2s"},
				step{2 * time.Second, keeper.Tick{}, "ask b"},
				step{0, keeper.Result{Number: 4}, "wait 2s"},
			), lease.Waiting},
		{"its answer is heard in a flood of questions", nil, append(held[:len(held):len(held)],
			step{time.Hour, seen(full(9, theirs)), "ask b"},
			step{0, keeper.Result{Number: 3}, "wait 2s"},
			step{time.Second, flood(lease.Message{To: "a", From: "other", Node: "b", Answers: "process",
				Subnets: "10.244.5.0-24", Revision: 9}), "wait 2s"},
			step{2 * time.Second, keeper.Tick{}, "ask b"},
			step{0, keeper.Result{Number: 4}, "wait 2s"},
		), lease.Waiting},
		{"a silent one's is replaced", nil, append(held[:len(held):len(held)],
			step{time.Hour, seen(full(9, theirs)), "ask b"},
			step{0, keeper.Result{Number: 3}, "wait 2s"},
			step{1500 * time.Millisecond, keeper.Tick{}, "wait 0s"},
			step{0, keeper.Tick{}, "read"},
			step{0, keeper.Result{Number: 5, Snapshot: full(9, theirs)}, ""}, // of no call
			step{0, keeper.Result{Number: 4, Snapshot: full(9, theirs)}, "write 10.244.5.0/24 at 9"},
		), lease.Held},
		{"a silent one is asked again if the store refuses to write", nil, append(held[:len(held):len(held)],
			step{time.Hour, seen(full(9, theirs)), "ask b"},
			step{0, keeper.Result{Number: 3}, "wait 2s"},
			step{1500 * time.Millisecond, keeper.Tick{}, "wait 0s"},
			step{0, keeper.Tick{}, "read"},
			step{0, keeper.Result{Number: 4, Snapshot: full(9, theirs)}, "write 10.244.5.0/24 at 9"},
			step{0, keeper.Result{Number: 5, Err: lease.ErrRefused}, "wait 0s"},
			step{3 * time.Hour, keeper.Tick{}, "read"},
			step{0, keeper.Result{Number: 6, Snapshot: full(9, theirs)}, "ask b"},
		), lease.Waiting},
		{"who is in its place at the same revision of another store is asked", nil,
			append(held[:len(held):len(held)],
				step{time.Hour, seen(full(9, theirs)), "ask b"},
				step{0, keeper.Result{Number: 3}, "wait 2s"},
				step{1500 * time.Millisecond, keeper.Tick{}, "wait 0s"},
				step{0, keeper.Tick{}, "read"},
				step{0, keeper.Result{Number: 4, Snapshot: full(9, theirs)}, "write 10.244.5.0/24 at 9"},
				step{0, keeper.Result{Number: 5, Revision: 10}, "wait 0s"},
				step{time.Minute, seen(another), "ask b"},
			), lease.Waiting},
		{"a record that is written while its owner is asked for is asked for again", nil,
			append(held[:len(held):len(held)],
				step{time.Hour, seen(full(9, theirs)), "ask b"},
				step{0, keeper.Result{Number: 3}, "wait 2s"},
				step{time.Second, seen(full(10, renewed)), "wait 1s"},
				step{500 * time.Millisecond, keeper.Tick{}, "wait 1s"},
				step{time.Second, keeper.Tick{}, "ask b"},
				step{0, keeper.Result{Number: 4}, "wait 2s"},
				step{1500 * time.Millisecond, keeper.Tick{}, "wait 0s"},
				step{0, keeper.Tick{}, "read"},
				step{0, keeper.Result{Number: 5, Snapshot: full(10, renewed)}, "write 10.244.5.0/24 at 10"},
			), lease.Held},
		{"a copy of our machine is asked in the store and at its address", func(o *keeper.Options) {
			o.Underlay, o.State = answers{}, "copy"
		}, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{0, seen(full(9, copied)), "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(9, copied)}, "ask a"},
			{0, keeper.Result{Number: 2, Err: lease.ErrMute},
				"ask 192.0.2.9 round 1; publish none and 0; save none at 0 and 1; wait 2s"},
			{time.Second, keeper.News{Answered: 1}, "wait 1s"},
			{time.Second, keeper.Tick{}, "read"},
			{0, keeper.Result{Number: 3, Snapshot: full(9, copied)}, "wait 2s"},
		}, lease.Waiting},
		{"who asks is answered, and who held later is not", nil, append(held[:len(held):len(held)],
			step{time.Minute, keeper.News{Messages: []lease.Message{{To: "a", From: "other", Node: "a", Asks: true,
				Subnets: "10.244.5.0-24"}}}, "answer a"},
			step{0, keeper.News{Messages: []lease.Message{{To: "a", From: "other", Node: "a", Asks: true,
				Subnets: "10.244.5.0-24", Revision: 99}}}, ""},
			step{0, keeper.Result{Number: 3}, "wait 5m0s"},
		), lease.Held},
		{"of two that ask in one moment both are answered", nil, append(held[:len(held):len(held)],
			step{time.Minute, keeper.News{Messages: []lease.Message{asks("one"), asks("two")}}, "answer a"},
			step{0, keeper.Result{Number: 3}, "wait 0s"},
			step{49 * time.Millisecond, keeper.Tick{}, "wait 0s"},
			step{time.Millisecond, keeper.Tick{}, "answer a"},
			step{0, keeper.Result{Number: 4}, "wait 5m0s"},
		), lease.Held},
		{"who asks before we hold anything is answered once we do", nil, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{0, keeper.News{Messages: []lease.Message{asks("one")}}, "wait 15s"},
			{time.Second, seen(full(7, mine)), "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(7, mine)}, "write 10.244.5.0/24 at 7"},
			{0, keeper.Result{Number: 2, Revision: 8}, rejoin + "wait 0s"},
			{0, keeper.Tick{}, "answer a"},
			{time.Second, keeper.Result{Number: 3}, "wait 5m0s"},
		}, lease.Held},
		{"but not when it has given up", nil, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{0, keeper.News{Messages: []lease.Message{asks("one")}}, "wait 15s"},
			{time.Second, seen(full(7, mine)), "read"},
			{time.Second, keeper.Result{Number: 1, Snapshot: full(7, mine)}, "write 10.244.5.0/24 at 7"},
			{0, keeper.Result{Number: 2, Revision: 8}, rejoin + "wait 5m0s"},
		}, lease.Held},
		{"a late answer of one is not another's", func(o *keeper.Options) {
			o.Underlay, o.State = answers{}, "copy"
		}, []step{
			{0, keeper.Begin{}, "listen a; watch; wait 15s"},
			{0, seen(full(9, copied)), "read"},
			{0, keeper.Result{Number: 1, Snapshot: full(9, copied)}, "ask a"},
			{0, keeper.Result{Number: 2}, "ask 192.0.2.9 round 1; publish none and 0; save none at 0 and 1; wait 2s"},
			{time.Second, seen(full(10, moved)), "read"},
			{0, keeper.Result{Number: 3, Snapshot: full(10, moved)},
				"ask a"},
			{0, keeper.Result{Number: 4}, "ask 192.0.2.8 round 2; publish none and 0; wait 2s"},
			{0, keeper.News{Answered: 1}, "wait 0s"},
			{1500 * time.Millisecond, keeper.Tick{}, "read"},
			// in silence: with an answer it were two
			{0, keeper.Result{Number: 5, Snapshot: full(10, moved)},
				"wait 1s"},
		}, lease.Waiting},
		{"peers come and go while a call is under way, and are taken in after it", nil,
			append(held[:len(held):len(held)],
				step{23 * time.Hour, keeper.Tick{}, "write 10.244.5.0/24 at 8"},
				step{0, seen(full(9, mine8, peer)), ""},
				step{0, seen(full(10, mine8, peer)), ""},
				// what the watch said is older than what we wrote
				step{0, keeper.Result{Number: 3, Revision: 11}, "save 10.244.5.0/24 at 11 and 1; read"},
			), lease.Held},
		{"a write whose answer was lost is ours, also if it says where we were", nil,
			append(held[:len(held):len(held)],
				step{time.Hour, keeper.News{Local: ptr(local("192.0.2.7"))}, "write 10.244.5.0/24 at 8"},
				step{0, keeper.Result{Number: 3, Err: outage}, "wait 1s"},
				step{0, keeper.News{Local: ptr(local("192.0.2.1"))}, "wait 0s"}, // for the cache
				step{time.Second, keeper.Tick{}, "read"},
				step{0, keeper.Result{Number: 4, Snapshot: full(9, elsewhere)}, "write 10.244.5.0/24 at 9"},
			), lease.Held},
		{"a stop waits for the answer to a write, and saves what it says", nil, append(held[:len(held):len(held)],
			step{time.Hour, keeper.News{Local: ptr(local("192.0.2.7"))}, "write 10.244.5.0/24 at 8"},
			step{0, keeper.Stop{}, ""},
			step{0, keeper.Result{Number: 3, Revision: 11},
				"publish 10.244.5.0/24 and 0; save 10.244.5.0/24 at 11 and 1"},
			step{0, keeper.Tick{}, ""},
		), lease.Held},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCore(t, func(o *keeper.Options) {
				o.Cache = belief.NewCache(t.TempDir(), "/net") // never written: a core does no I/O
				if tt.change != nil {
					tt.change(o)
				}
			})
			now, cache := epoch(), ""
			for i, s := range tt.steps {
				now = now.Add(s.after)
				effects := c.Step(now, s.event)
				if got := describe(effects, now, &cache); got != s.want {
					t.Errorf("step %d, %T:\n got %s\nwant %s", i, s.event, got, s.want)
				}
				if slices.ContainsFunc(effects, func(f keeper.Effect) bool { _, ok := f.(keeper.SaveCache); return ok }) {
					c.Step(now, keeper.Saved{Written: true})
				}
			}
			if got := c.Status(now).State; got != tt.state {
				t.Errorf("state %s, want %s (%v)", got, tt.state, c.Status(now).Err)
			}
		})
	}
}

// TestDualStackIsVerifiedAgain has a record of two subnets come to be in the store by a write that had no
// answer, and by one that put it back: another may have a part of it under another key by then, and so the
// store is read once more.
func TestDualStackIsVerifiedAgain(t *testing.T) {
	const dual = `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`
	mine := leasetest.Record(t, "10.244.5.0/24,fd00:0:0:5::/64", "a", "192.0.2.1,2001:db8::1", 7)
	mine.Attrs = local("192.0.2.1,2001:db8::1").Signed("a", "s").Attrs
	mine.Created, mine.Expires = 7, epoch().Add(lease.TTL)
	full := func(revision int64, records ...lease.Record) *lease.Snapshot {
		return &lease.Snapshot{ClusterID: "c", Revision: revision, Config: []byte(dual),
			Records: leasetest.Pointers(records...)}
	}
	var c *keeper.Core
	step := func(want string, e keeper.Event) {
		t.Helper()
		if got := describe(c.Step(epoch(), e), epoch(), new(string)); !strings.HasSuffix(got, want) {
			t.Errorf("%T: %s, want %s", e, got, want)
		}
	}
	c = newCore(t, func(o *keeper.Options) {
		o.Config, o.Local = leasetest.Config(t, dual), local("192.0.2.1,2001:db8::1")
	})
	c.Step(epoch(), keeper.Begin{})
	step("read", keeper.News{Snapshot: full(7, mine), Watched: true})
	step("write "+mine.Subnets.String()+" at 7", keeper.Result{Number: 1, Snapshot: *full(7, mine)})
	step("wait 0s", keeper.Result{Number: 2, Revision: 8})
	step("read", keeper.Tick{})
	mine.Revision = 8
	step("wait 5m0s", keeper.Result{Number: 3, Snapshot: *full(8, mine)})
	step("write "+mine.Subnets.String()+" at 0", keeper.News{Snapshot: full(9), Watched: true})
	step("wait 0s", keeper.Result{Number: 4, Revision: 10})
	step("read", keeper.Tick{})
}

// TestSilenceEndsWithAnOutage has a record put back so often that the next write waits, in the place of a
// silent owner's record under another key. The store is silent meanwhile, and the owner may be back: the
// store is read before that record is replaced.
func TestSilenceEndsWithAnOutage(t *testing.T) {
	c, now := newCore(t, nil), epoch()
	mine := created(t, "10.244.5.0/24", 7)
	theirs := leasetest.Record(t, "10.244.4.0/23", "b", "192.0.2.2", 30)
	full := func(revision int64, records ...lease.Record) lease.Snapshot {
		return lease.Snapshot{ClusterID: "c", Revision: revision, Config: []byte(network),
			Records: leasetest.Pointers(records...)}
	}
	calls := uint64(0)
	step := func(after time.Duration, e keeper.Event) (operation string) {
		now = now.Add(after)
		for _, f := range c.Step(now, e) {
			if call, ok := f.(keeper.Call); ok {
				operation, calls = describeOperation(call.Operation), call.Number
			}
		}
		return operation
	}
	see := func(after time.Duration, s lease.Snapshot) string {
		return step(after, keeper.News{Snapshot: &s, Watched: true})
	}
	step(0, keeper.Begin{})
	see(0, full(7, mine))
	step(0, keeper.Result{Number: calls, Snapshot: full(7, mine)})
	step(0, keeper.Result{Number: calls, Revision: 8})
	for revision := int64(9); revision < 29; revision += 2 {
		if see(time.Second, full(revision)) == "" { // else it is written at once
			step(10*time.Second, keeper.Tick{})
		}
		step(0, keeper.Result{Number: calls, Revision: revision + 1})
	}
	if got := see(time.Second, full(30, theirs)); got != "ask b" {
		t.Fatalf("%q, want its owner asked", got)
	}
	step(0, keeper.Result{Number: calls})
	step(1500*time.Millisecond, keeper.Tick{})
	if got := step(10*time.Second, keeper.Tick{}); got != "read" {
		t.Fatalf("%q, want a read", got)
	}
	if got := step(0, keeper.Result{Number: calls, Snapshot: full(30, theirs)}); got != "" {
		t.Fatalf("%q, want the write put off", got)
	}
	step(time.Millisecond, keeper.News{Watched: true, Lost: errors.New("no endpoint answers")})
	if got := step(10*time.Second, keeper.Tick{}); got != "read" {
		t.Errorf("%q, want a read", got)
	}
}

// TestRevisionOfAnotherStore has a store wiped, or restored, and our subnet given to another before we came
// back. Our question must not say at which revision the store that was had our record: to who has got it
// since that would be the later one, and gets no answer.
func TestRevisionOfAnotherStore(t *testing.T) {
	for _, tt := range []struct {
		name, cluster string
	}{{"wiped", "d"}, {"gone back", "c"}} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCore(t, nil)
			mine := created(t, "10.244.5.0/24", 7)
			full := func(cluster string, revision int64, r lease.Record) lease.Snapshot {
				return lease.Snapshot{ClusterID: cluster, Revision: revision, Config: []byte(network),
					Records: leasetest.Pointers(r)}
			}
			c.Step(epoch(), keeper.Begin{})
			first := full("c", 7, mine)
			c.Step(epoch(), keeper.News{Snapshot: &first, Watched: true})
			c.Step(epoch(), keeper.Result{Number: 1, Snapshot: first})
			c.Step(epoch(), keeper.Result{Number: 2, Revision: 8})
			now := full(tt.cluster, 5, leasetest.Record(t, "10.244.5.0/24", "b", "192.0.2.2", 5))
			effects := c.Step(epoch().Add(time.Hour), keeper.News{Snapshot: &now, Watched: true})
			for _, f := range effects { // what went back is read once more, to be sure
				if call, ok := f.(keeper.Call); ok && call.Operation == (keeper.ReadStore{}) {
					effects = c.Step(epoch().Add(time.Hour), keeper.Result{Number: call.Number, Snapshot: now})
				}
			}
			for _, f := range effects {
				if call, ok := f.(keeper.Call); ok {
					if ask, ok := call.Operation.(keeper.SendMessage); ok {
						if !ask.Message.Asks || ask.Message.Revision != 0 {
							t.Errorf("asked with %+v", ask.Message)
						}
						return
					}
				}
			}
			t.Errorf("nobody is asked: %s", describe(effects, epoch(), new(string)))
		})
	}
}

func ptr[T any](v T) *T { return &v }

// created is a record as this node writes it.
func created(t testing.TB, subnet string, revision int64) lease.Record {
	r := leasetest.Record(t, subnet, "a", "192.0.2.1", revision)
	r.Weft.State = "s"
	r.Expires = epoch().Add(lease.TTL)
	return r
}

// flood is what has come to one who was cut off for long, and m after it: one sender's questions of hours,
// and those of many.
func flood(m lease.Message) (n keeper.News) {
	for i := range 300 {
		ask := lease.Message{To: "a", From: "copy", Node: "a", Asks: true, Subnets: "10.244.5.0-24", Revision: 99}
		n.Merge(keeper.News{Messages: []lease.Message{ask}})
		ask.From = fmt.Sprint("stranger-", i)
		n.Merge(keeper.News{Messages: []lease.Message{ask}})
	}
	n.Merge(keeper.News{Messages: []lease.Message{m}})
	return n
}
