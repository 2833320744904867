package lease_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"weft/lease"
)

// world is everything around one core, drawn from one seed: a store that others write to, an operator who
// deletes and scribbles, lost answers, late watches, and owners that live or do not. It has no clock but now.
type world struct {
	t     testing.TB
	seed  uint64
	rng   *rand.Rand
	core  *lease.Core
	now   time.Time
	wake  time.Time // the core's Wait
	queue []delivery
	all   []lease.Effect // everything that was asked for

	cluster  string
	revision int64
	config   []byte
	records  map[lease.Subnets]lease.Record
	alive    map[string]bool // by identity and address: whether the owner answers
	down     bool
	quiet    time.Duration // for how long nothing more happens
	saved    lease.Cached
}

// delivery is an event on its way to the core.
type delivery struct {
	at    time.Time
	event lease.Event
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: coreRand(seed), now: epoch(), cluster: "c", revision: 1, config: []byte(network),
		records: map[lease.Subnets]lease.Record{}, alive: map[string]bool{}}
	w.start(seed)
	return w
}

// start begins a life of the core, with what the last one has saved.
func (w *world) start(seed uint64) {
	w.queue = nil // what was under way does not find it
	w.core = newCore(w.t, func(o *lease.Options) {
		o.Rand, o.Seed, o.Underlay, o.Cache = coreRand(seed+1), []byte(network), answers{}, lease.NewCache("/nonexistent", "/net")
		if w.saved.Memory.ClusterID != "" && w.rng.IntN(4) > 0 {
			saved := w.saved
			o.Cached = &saved
		}
	})
	w.step(lease.Begin{})
}

// subnet is one of a few, so that there are conflicts.
func (w *world) subnet() lease.Subnets {
	return lease.Subnets{V4: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", 1+w.rng.IntN(3)))}
}

// other is a record of another owner, or of another process with the core's identity.
func (w *world) other() lease.Record {
	names := []string{"b", "c", "a", ""}
	i := w.rng.IntN(len(names))
	r := lease.Record{Subnets: w.subnet()}
	r.PublicIP = netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)})
	if names[i] != "" {
		r.Weft = &lease.Weft{Node: names[i], State: "elsewhere"}
	}
	if _, known := w.alive[owner(r)]; !known {
		w.alive[owner(r)] = w.rng.IntN(2) == 0
	}
	return r
}

func owner(r lease.Record) string { return r.Node() + "@" + r.Address().String() }

func (w *world) mine(r lease.Record) bool { return r.Node() == "a" && r.State() == "s" }

// put writes a record, whatever is there.
func (w *world) put(r lease.Record, ttl time.Duration) int64 {
	w.revision++
	r.Revision, r.Reservation = w.revision, ttl == 0
	if ttl != 0 {
		r.Expires = w.now.Add(ttl)
	}
	w.records[r.Subnets] = r
	w.watch()
	return w.revision
}

func (w *world) snapshot() lease.Snapshot {
	s := lease.Snapshot{ClusterID: w.cluster, Revision: w.revision, Config: w.config}
	for _, r := range w.records {
		s.Records = append(s.Records, &r)
	}
	slices.SortFunc(s.Records, func(a, b *lease.Record) int { return a.Compare(b.Subnets) })
	return s
}

// later has the core told in a while that is shorter than most.
func (w *world) later(most time.Duration, e lease.Event) {
	w.queue = append(w.queue, delivery{w.now.Add(time.Duration(w.rng.Int64N(int64(most)))), e})
}

// watch tells of what the store has now, sooner or later, and not always in order.
func (w *world) watch() {
	if s := w.snapshot(); !w.down {
		w.later(500*time.Millisecond, lease.News{Snapshot: &s, Watched: true})
	}
}

// step hands e to the core and does what it asks for.
func (w *world) step(e lease.Event) {
	w.t.Helper()
	effects := w.core.Step(w.now, e)
	w.all = append(w.all, effects...)
	for _, f := range effects {
		switch f := f.(type) {
		case lease.Call:
			r := w.do(f.Operation)
			r.Number = f.Number
			w.later(100*time.Millisecond, r)
		case lease.AskUnderlay:
			if w.alive[owner(lease.Record{Attrs: f.Attrs})] {
				w.later(time.Second, lease.News{Answered: f.Round})
			}
		case lease.SaveCache:
			w.saved = f.Cached
			w.step(lease.Saved{Written: true})
		case lease.Wait:
			w.wake = f.Until
		}
	}
	if st := w.core.Status(w.now); st.State.String() == "invalid" || (st.State == lease.Held) != st.Ready() {
		w.t.Fatalf("seed %d: state %d", w.seed, st.State)
	}
}

// do is the store.
func (w *world) do(op lease.Operation) (r lease.Result) {
	if w.down {
		return lease.Result{Err: errors.New("no endpoint answers")}
	}
	for s, rec := range w.records {
		if !rec.Reservation && !w.now.Before(rec.Expires) {
			delete(w.records, s)
			w.revision++
		}
	}
	switch op := op.(type) {
	case lease.ReadStore:
		r.Snapshot = w.snapshot()
	case lease.WriteRecord:
		r = w.write(op.Subnets, op.Attrs, op.TTL, op.IfRevision)
	case lease.ReplaceRecord:
		if w.records[op.Old].Revision != op.OldRevision || !w.mine(w.records[op.Old]) && w.records[op.Old].Node() != "" {
			return lease.Result{Err: lease.ErrConflict}
		}
		if r = w.write(op.Subnets, op.Attrs, op.TTL, 0); r.Err == nil {
			delete(w.records, op.Old)
		}
	case lease.DeleteRecord:
		rec := w.records[op.Subnets]
		if rec.Revision != op.IfRevision || rec.Revision == 0 {
			return lease.Result{Err: lease.ErrConflict}
		}
		if rec.Node() != "a" {
			w.t.Fatalf("seed %d: %s of %s is deleted", w.seed, rec.Subnets, owner(rec))
		}
		delete(w.records, op.Subnets)
		w.revision++
		w.watch()
	case lease.ReadRemaining:
		r.Remaining = w.records[op.Subnets].Expires.Sub(w.now)
	case lease.WriteConfig:
		if w.config == nil {
			w.config, w.revision = op.Config, w.revision+1
			w.watch()
		}
	case lease.SendMessage:
		w.ask(op.Message)
	}
	return r
}

// write is a compare-and-swap. One that takes what another owner has that lives is what must not be.
func (w *world) write(s lease.Subnets, a lease.Attrs, ttl time.Duration, at int64) (r lease.Result) {
	there := w.records[s]
	if there.Revision != at {
		return lease.Result{Err: lease.ErrConflict}
	}
	if at != 0 && there.Node() != "" && !w.mine(there) && w.alive[owner(there)] {
		w.t.Fatalf("seed %d, %s: %s is written at %d, which %s has, who lives", w.seed, w.now.Format(time.DateTime), s, at, owner(there))
	}
	r.Revision = w.put(lease.Record{Subnets: s, Attrs: a}, ttl)
	if w.rng.IntN(10) == 0 {
		return lease.Result{Err: errors.New("the reply is lost")}
	}
	return r
}

// ask has everybody with the identity hear the question; who lives answers once, in time: with what was asked
// for, if that is among what it has.
func (w *world) ask(m lease.Message) {
	if !m.Asks {
		return
	}
	answers := map[string]lease.Record{}
	for _, r := range w.snapshot().Records {
		if r.Node() == m.To && !w.mine(*r) && w.alive[owner(*r)] && (answers[owner(*r)].Node() == "" || r.Key() == m.Subnets) {
			answers[owner(*r)] = *r
		}
	}
	for _, who := range slices.Sorted(maps.Keys(answers)) {
		r := answers[who]
		w.later(1400*time.Millisecond, lease.News{Messages: []lease.Message{{
			To: m.Node, From: who, Node: r.Node(), Answers: m.From, Subnets: r.Key(), Revision: r.Revision, Address: r.Address(),
		}}})
	}
}

// happen is one thing that somebody does.
func (w *world) happen(seed uint64) {
	switch w.rng.IntN(16) {
	case 0, 1, 2:
		w.put(w.other(), time.Duration(w.rng.IntN(25))*time.Hour)
	case 3:
		s := w.subnet()
		if _, there := w.records[s]; there {
			delete(w.records, s)
			w.revision++
			w.watch()
		}
	case 4:
		w.down = !w.down
		if w.down {
			w.later(time.Second, lease.News{Lost: errors.New("no endpoint answers"), Watched: true})
		}
		w.watch()
	case 5:
		w.quiet = time.Duration(w.rng.IntN(8)) * time.Hour
	case 6:
		w.step(lease.News{Local: ptr(local(fmt.Sprintf("192.0.2.%d", 1+w.rng.IntN(3))))})
	case 7:
		w.config, w.revision = nil, w.revision+1
		w.watch()
	case 8:
		w.cluster, w.revision = fmt.Sprint("c", w.rng.IntN(3)), int64(1+w.rng.IntN(20))
		clear(w.records)
		w.watch()
	case 9:
		w.step(lease.News{Messages: []lease.Message{{
			To: "a", From: "stranger", Node: []string{"a", "b", "x"}[w.rng.IntN(3)], Asks: true, Subnets: w.subnet().Key(), Revision: w.rng.Int64N(20),
		}}})
	case 10:
		r := w.other()
		w.alive[owner(r)] = !w.alive[owner(r)]
		for _, had := range w.snapshot().Records { // who comes back says so
			if owner(*had) == owner(r) && w.alive[owner(r)] {
				w.put(*had, lease.TTL)
			}
		}
	case 11: // it is killed, and starts again
		w.start(seed)
	case 12:
		w.step(lease.Tick{})
	default:
	}
}

// run lets so many things happen, each a little after the other, with what they lead to between them.
func (w *world) run(seed uint64, things int) {
	for range things {
		w.happen(seed)
		until := w.now.Add(w.quiet + time.Duration(w.rng.Int64N(int64(4*time.Second))))
		w.quiet = 0
		for range 500 { // a contest of hours has many
			slices.SortStableFunc(w.queue, func(a, b delivery) int { return a.at.Compare(b.at) })
			next, delivered := delivery{w.wake, lease.Tick{}}, 0
			if len(w.queue) > 0 && !w.queue[0].at.After(next.at) {
				next, delivered = w.queue[0], 1
			}
			if next.at.After(until) {
				w.now = until
				break
			}
			w.queue = w.queue[delivered:]
			if next.at.After(w.now) {
				w.now = next.at
			}
			w.wake = w.now.Add(time.Minute)
			w.step(next.event)
		}
	}
	w.step(lease.Stop{})
}

// live is a life in a world of one seed.
func live(t testing.TB, seed uint64, things int) []lease.Effect {
	w := newWorld(t, seed)
	w.run(seed, things)
	return w.all
}

// TestCoreLives lives many lives: nothing panics, every state has a name, no record is taken from another that lives,
// and the same seed gives the same effects.
func TestCoreLives(t *testing.T) {
	writes, asked := 0, 0
	for seed := range uint64(150) {
		all := live(t, seed, 100)
		for _, f := range all {
			if c, ok := f.(lease.Call); ok {
				switch c.Operation.(type) {
				case lease.WriteRecord:
					writes++
				case lease.SendMessage:
					asked++
				}
			}
		}
		if seed < 10 && !reflect.DeepEqual(all, live(t, seed, 100)) {
			t.Errorf("seed %d: two lives are not alike", seed)
		}
	}
	if writes < 1000 || asked < 1000 {
		t.Errorf("%d writes and %d questions: the lives are dull", writes, asked)
	}
}

// FuzzCore lives the life of any seed, and between its events hands in such as nothing has led to.
func FuzzCore(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed, uint8(seed*13))
	}
	f.Fuzz(func(t *testing.T, seed uint64, nonsense uint8) {
		w := newWorld(t, seed)
		for range 20 {
			w.run(seed, 3)
			for range nonsense % 8 {
				w.nonsense()
			}
			w.start(seed)
		}
	})
}

// nonsense is an event out of place.
func (w *world) nonsense() {
	s := w.snapshot()
	s.Revision, s.ClusterID = w.rng.Int64N(30), []string{"", "c", "c1"}[w.rng.IntN(3)]
	r := w.other()
	events := []lease.Event{
		lease.Begin{}, lease.Stop{}, lease.Tick{}, lease.News{}, lease.Saved{Err: errors.New("the disk is full")},
		lease.Result{}, lease.Result{Number: 1 + w.rng.Uint64N(50)}, lease.Result{Number: w.rng.Uint64N(50), Err: lease.ErrConflict},
		lease.News{Snapshot: &s}, lease.News{Snapshot: &lease.Snapshot{}, Watched: true}, lease.News{Answered: w.rng.IntN(4), Proven: true},
		lease.News{Snapshot: &lease.Snapshot{ClusterID: "c", Config: []byte("{"), Records: pointers(r), Bad: []lease.Rejected{{Key: w.subnet().Key()}}}},
		lease.News{Messages: slices.Repeat([]lease.Message{{From: "x", Node: "b", Answers: "process", Subnets: w.subnet().Key()}}, 100)},
	}
	w.all = append(w.all, w.core.Step(w.now, events[w.rng.IntN(len(events))])...) // and nobody does what it asks for
	if got := w.core.Status(w.now).State.String(); got == "invalid" {
		w.t.Fatal("no state")
	}
}
