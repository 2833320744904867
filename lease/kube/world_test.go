package kube

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"weft/lease"
	"weft/lease/kube/internal/objects"
)

// world is everything around one core, drawn from one seed: an API server with Nodes that others change, an
// operator who deletes and scribbles, lost answers, late watches, and machines of our name that live or do
// not. It has no clock but now.
type world struct {
	t     testing.TB
	seed  uint64
	rng   *rand.Rand
	core  *core
	table *table
	now   time.Time
	wake  time.Time // the core's Wait
	queue []delivery
	all   []Effect // everything that was asked for
	lives int

	nodes    map[string]*objects.Node
	version  int64
	down     bool
	quiet    time.Duration // for how long nothing more happens
	saved    lease.Cached
	watching bool
	watched  time.Time // when the watch has said everything that was so far

	under, probing, saving, stopped bool
	path                            *dataPath // as the core was told
	right                           time.Time // when the core first knew that our Node says what it says
	other                           time.Time // since when it knows that it says another's; zero while it does not
}

// delivery is something that is on its way.
type delivery struct {
	at time.Time
	do func()
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), version: 100, nodes: map[string]*objects.Node{},
		now: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)}
	if w.rng.IntN(4) > 0 {
		w.put(plainNode("a", w.cidr()))
	}
	w.start()
	return w
}

// start begins a life of the core, with what the last one has saved.
func (w *world) start() {
	w.lives++
	w.queue, w.watching, w.under, w.probing, w.saving, w.stopped = nil, false, false, false, false, false
	w.path, w.right, w.other = nil, time.Time{}, time.Time{}
	life := w.lives
	w.core = newTestCoreAt(w.t, w.now, rand.New(rand.NewPCG(w.seed, uint64(life))), func(o *Options) {
		o.Cache = lease.NewCache("/nonexistent", "kube")
		if w.saved.Memory.ClusterID != "" && w.rng.IntN(4) > 0 {
			saved := w.saved
			o.Cached = &saved
		}
	})
	w.table = newTable(w.core.keys, w.core.o.Config, "a", func() { w.heard() }, func(n news) {
		if life == w.lives {
			w.step(n)
		}
	})
	w.step(begin{})
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, life %d, at %s: %s", w.seed, w.lives, w.now.Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func (w *world) heard() {
	if w.now.After(w.core.server.heard) {
		w.core.server.heard = w.now // which wakes nobody
	}
}

// plainNode is a Node that nobody has written to.
func plainNode(name string, cidrs ...string) *objects.Node {
	n := &objects.Node{}
	n.Name, n.Spec.PodCIDRs, n.Annotations = name, cidrs, map[string]string{}
	return n
}

// says has a Node say that it is at addr: by a flannel, or by a weft with a state directory.
func (w *world) says(n *objects.Node, addr, state string) {
	k := w.core.keys
	n.Annotations[k.managed], n.Annotations[k.backendType], n.Annotations[k.public] = "true", "vxlan", addr
	n.Annotations[k.data] = `{"VNI":1,"VtepMAC":"02:00:00:00:00:09"}`
	delete(n.Annotations, k.weft)
	if state != "" {
		n.Annotations[k.weft] = fmt.Sprintf(`{"Node":"a","State":%q,"Of":%q}`, state, k.sumOf(n.Annotations))
	}
}

func (w *world) cidr() string { return fmt.Sprintf("10.244.%d.0/24", 1+w.rng.IntN(4)) }

// stranger is another machine's address: who lives has an even one.
func (w *world) stranger() string { return fmt.Sprintf("192.0.2.%d", 10+w.rng.IntN(4)) }

func alive(a netip.Addr) bool { return a.As4()[3] >= 10 && a.As4()[3]%2 == 0 }

func clone(n *objects.Node) *objects.Node {
	out := *n
	out.Annotations = maps.Clone(n.Annotations)
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	return &out
}

// put writes a Node, and has the watch tell.
func (w *world) put(n *objects.Node) {
	w.version++
	n = clone(n)
	n.ResourceVersion = strconv.FormatInt(w.version, 10)
	if n.UID == "" {
		n.UID = types.UID(fmt.Sprint("uid-", n.Name, w.version))
	}
	w.nodes[n.Name] = n
	w.watch(func() { _ = w.table.Add(n) })
}

func (w *world) remove(name string) {
	if n := w.nodes[name]; n != nil {
		delete(w.nodes, name)
		w.version++
		w.watch(func() { _ = w.table.Delete(n) })
	}
}

// watch has the watch say something, later than what it said before.
func (w *world) watch(says func()) {
	if w.down || !w.watching {
		return
	}
	at := w.now.Add(w.some(400 * time.Millisecond))
	if at.Before(w.watched) {
		at = w.watched
	}
	w.watched = at
	w.queue = append(w.queue, delivery{at, says})
}

// relist has everything read.
func (w *world) relist() {
	var list []any
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		list = append(list, w.nodes[name])
	}
	at := strconv.FormatInt(w.version, 10)
	w.watch(func() {
		_ = w.table.Replace(list, at)
		w.step(news{watch: &watchState{}})
	})
}

func (w *world) some(most time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(most)))
}

// later has the core told in a while that is shorter than most.
func (w *world) later(most time.Duration, e event) { w.after(most, func() { w.step(e) }) }

func (w *world) after(most time.Duration, do func()) {
	w.queue = append(w.queue, delivery{w.now.Add(w.some(most)), do})
}

// step hands e to the core, does what it asks for, and looks whether it may ask for that.
func (w *world) step(e event) {
	w.t.Helper()
	for events := []event{e}; len(events) > 0; events = events[1:] {
		if n, ok := events[0].(news); ok && n.path != nil {
			w.path = n.path
		}
		was := w.stopped
		effects := w.core.step(w.now, events[0])
		if was && len(effects) > 0 {
			w.fatalf("after its end the core asks for %#v", effects[0])
		}
		w.all = append(w.all, effects...)
		w.look()
		for _, f := range effects {
			if answer := w.do(f); answer != nil {
				events = append(events, answer)
			}
		}
	}
	if st := w.core.status(); st.State.String() == "invalid" || (st.State == lease.Held) != st.Ready() {
		w.fatalf("state %d", st.State)
	}
}

// look notes what the core knows of our Node.
func (w *world) look() {
	addr, says := w.sayer()
	ours := says && addr == w.core.announced().Attrs.Address()
	if ours && w.right.IsZero() {
		w.right = w.now
	}
	if !says || addr.As4()[3] < 10 {
		w.other = time.Time{}
	} else if w.other.IsZero() {
		w.other = w.now
	}
}

// sayer is where our Node says that it is, as far as the core knows. What does not parse says nothing.
func (w *world) sayer() (addr netip.Addr, says bool) {
	if w.core.ours == nil || !w.core.keys.isManaged(w.core.ours.Annotations) {
		return addr, false
	}
	a, err := w.core.keys.decode(w.core.ours.Annotations)
	return a.PublicIP, err == nil && a.PublicIP.IsValid()
}

// mayWrite is what must hold when our Node is written.
func (w *world) mayWrite(f PatchNode) {
	settled := !w.right.IsZero() && w.other.Sub(w.right) > namesakeSettled
	if addr, says := w.sayer(); says && alive(addr) && !settled {
		w.fatalf("our Node is written, which says that it is at %s, where somebody lives, since %s, and of us since %s (%+v, phase %d): %s", addr, w.other.Format(time.TimeOnly), w.right.Format(time.TimeOnly), w.core.namesake, w.core.phase, f.patch.body())
	}
	if f.patch.claims() && (w.path == nil || w.path.broken != "" || w.core.held.Subnets == (lease.Subnets{})) {
		w.fatalf("the network is said to be available, with data path %+v and subnets %s: %s", w.path, w.core.held.Subnets, f.patch.body())
	}
}

// do does what the core asks for; nil if there is nothing to tell it at once.
func (w *world) do(f Effect) event {
	switch f := f.(type) {
	case FindNode:
		w.request(found{name: "a"}, found{err: errors.New("no answer")})
	case WatchNodes:
		w.watching, w.watched = true, w.now
		w.relist()
	case readNodes:
		return nodesRead{w.table.read()}
	case PatchNode:
		w.mayWrite(f)
		if w.under {
			w.fatalf("two requests at a time")
		}
		w.under = true
		w.after(300*time.Millisecond, func() { w.patch(f) })
	case ProbeServer:
		if w.probing {
			w.fatalf("two signs of life are asked for at a time")
		}
		w.probing = true
		var err error
		if w.down {
			err = errors.New("it does not answer in time")
		}
		w.after(5*time.Second, func() { w.probing = false; w.step(probed{err}) })
	case Tell:
		if !isOurReason(strings.TrimSuffix(f.reason, "Over")) {
			w.fatalf("an Event with the reason %s", f.reason)
		}
	case lease.AskUnderlay:
		w.later(namesakeWait, news{answer: &answer{f.Round, alive(f.Attrs.PublicIP)}})
	case lease.SaveCache:
		if w.saving {
			w.fatalf("two saves at a time")
		}
		w.saving = true
		result := lease.Saved{Written: true}
		if w.rng.IntN(20) == 0 {
			result = lease.Saved{Err: errors.New("the disk is full")}
		}
		w.after(5*time.Second, func() {
			w.saving = false
			if result.Written {
				w.saved = f.Cached
			}
			w.step(result)
		})
	case lease.Wait:
		if w.wake = f.Until; !f.Until.After(w.now) {
			w.fatalf("it is to be woken %s ago", w.now.Sub(f.Until))
		}
	case lease.Publish, lease.Log:
	case Stopped:
		w.stopped = true
	default:
		w.fatalf("%T is no effect", f)
	}
	return nil
}

// request is answered by yes, or by no while the API server is down.
func (w *world) request(yes, no event) {
	if w.under {
		w.fatalf("two requests at a time")
	}
	w.under = true
	e := yes
	if w.down || w.rng.IntN(10) == 0 {
		e = no
	}
	w.after(300*time.Millisecond, func() { w.under = false; w.step(e) })
}

// patch is the API server, which takes a write.
func (w *world) patch(f PatchNode) {
	n := w.nodes["a"]
	if w.down || n == nil {
		w.after(300*time.Millisecond, func() { w.under = false; w.step(patched{err: errors.New("no answer")}) })
		return
	}
	n = clone(n)
	if f.patch.Metadata != nil {
		for key, value := range f.patch.Metadata.Annotations {
			if delete(n.Annotations, key); value != nil {
				n.Annotations[key] = *value
			}
		}
	}
	if f.patch.Status != nil {
		n.Status.Conditions = f.patch.Status.Conditions
	}
	w.put(n)
	n, lost, life := w.nodes["a"], w.rng.IntN(10) == 0, w.lives
	w.after(300*time.Millisecond, func() {
		w.under = false
		switch {
		case life != w.lives:
		case lost:
			w.step(patched{err: errors.New("the reply is lost")})
		default:
			w.step(patched{node: w.table.answered(n)})
		}
	})
}
