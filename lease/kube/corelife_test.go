package kube

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/kube/internal/objects"
)

// happen is one thing that somebody does.
func (w *world) happen() {
	ours := plainNode("a", w.cidr())
	if n := w.nodes["a"]; n != nil {
		ours = clone(n)
	}
	switch w.rng.IntN(20) {
	case 0, 1, 2: // another machine of our name
		w.says(ours, w.stranger(), []string{"", "s", "t"}[w.rng.IntN(3)])
		w.put(ours)
	case 3: // a vandal
		for _, key := range w.core.keys.written() {
			if w.rng.IntN(2) == 0 {
				delete(ours.Annotations, key)
			} else if w.rng.IntN(4) == 0 {
				ours.Annotations[key] = "{"
			}
		}
		w.put(ours)
	case 4:
		ours.Spec.PodCIDRs = nil
		w.put(ours)
	case 5, 6:
		ours.Spec.PodCIDRs = []string{w.cidr()}
		w.put(ours)
	case 7:
		w.remove("a")
	case 8, 9: // a peer, or a Node that takes no part
		n := plainNode([]string{"b", "c", "d"}[w.rng.IntN(3)], w.cidr())
		if had := w.nodes[n.Name]; had != nil {
			n.UID = had.UID
		}
		if w.rng.IntN(4) > 0 {
			w.says(n, fmt.Sprint("192.0.2.", 20+w.rng.IntN(4)), "")
		}
		w.put(n)
	case 10:
		w.remove([]string{"b", "c", "d"}[w.rng.IntN(3)])
	case 11:
		if w.down = !w.down; w.down {
			w.after(time.Second, func() {
				if w.down {
					w.step(news{watch: &watchState{errors.New("the API server refuses")}})
				}
			})
		} else if w.relist(); w.rng.IntN(8) == 0 { // from a backup
			w.version -= 5
		}
	case 12:
		w.quiet = w.some(10 * time.Minute)
	case 13:
		l := lease.Local{Attrs: attrs(fmt.Sprint("192.0.2.", 1+w.rng.IntN(3)), `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)}
		l = l.Signed("a", "s")
		w.step(news{local: &l})
	case 14, 15:
		w.step(news{path: &dataPath{broken: []string{"", "", "the device is gone"}[w.rng.IntN(3)]}})
	case 16: // another says of the network what it likes
		ours.Status.Conditions = []objects.NodeCondition{{Type: networkUnavailable, Status: []string{conditionTrue, conditionFalse}[w.rng.IntN(2)], Reason: []string{"X", reasonUp}[w.rng.IntN(2)]}}
		w.put(ours)
	case 17:
		ours.Annotations[w.core.keys.overwrite] = []string{"", "192.0.2.9", "nonsense"}[w.rng.IntN(3)]
		w.put(ours)
	case 18: // it is killed, or stops, and starts again
		if w.rng.IntN(2) == 0 {
			w.stop()
		}
		w.start()
	default:
		w.step(news{})
	}
}

// stop ends a life as it should be, after which nothing is asked for.
func (w *world) stop() {
	w.step(stop{})
	for range 10 {
		w.pass(3 * time.Second)
	}
	if !w.stopped {
		w.fatalf("it does not end")
	}
	for _, e := range []event{news{changed: true, proven: true}, found{name: "a"}, patched{err: errors.New("late")}, probed{}, lease.Saved{Written: true}, begin{}} {
		w.step(e)
	}
}

// pass lets some time pass, with what it brings.
func (w *world) pass(some time.Duration) {
	until := w.now.Add(some)
	for range 5000 {
		slices.SortStableFunc(w.queue, func(a, b delivery) int { return a.at.Compare(b.at) })
		at, do := w.wake, func() { w.step(news{}) }
		if delivered := len(w.queue) > 0 && !w.queue[0].at.After(at); delivered {
			at, do = w.queue[0].at, w.queue[0].do
			if !at.After(until) {
				w.queue = w.queue[1:]
			}
		}
		if at.After(until) {
			w.now = until
			return
		}
		if at.After(w.now) {
			w.now = at
		}
		w.wake = w.now.Add(time.Minute)
		do()
	}
	w.fatalf("it is busy without an end")
}

// run lets so many things happen, each a little after the other, with what they lead to between them.
func (w *world) run(things int) {
	for range things {
		w.happen()
		quiet := w.quiet
		w.quiet = 0
		w.pass(quiet + w.some(4*time.Second))
	}
}

// settle has everybody else leave us alone: then our Node says who we are, and that all is well.
func (w *world) settle() {
	w.down = false
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		w.remove(name)
	}
	w.put(plainNode("a", "10.244.1.0/24"))
	w.relist()
	w.step(news{path: &dataPath{}})
	w.pass(8 * time.Minute)
	st, n := w.core.status(), w.nodes["a"]
	have := networkCondition(n)
	if st.State != lease.Held || st.Err != nil || st.StoreErr != nil || st.Own.String() != "10.244.1.0/24" || have == nil || have.Status != conditionFalse {
		w.fatalf("left alone: %s, %v, %v, %s, condition %+v", st.State, st.Err, st.StoreErr, st.Own, have)
	}
	if got, want := n.Annotations[w.core.keys.public], w.core.local.Attrs.PublicIP.String(); got != want {
		w.fatalf("left alone, our Node says that it is at %q, and we are at %s", got, want)
	}
}

// live is a life in a world of one seed.
func live(t testing.TB, seed uint64, things int) []Effect {
	w := newWorld(t, seed)
	w.run(things)
	w.settle()
	w.stop()
	return w.all
}

// TestCoreLives lives many lives: our Node is never written while it says that it is where another machine lives, the
// network is never said to be available before it is, nothing is asked for after the end, nobody is woken without a
// pause, and who is left alone has its Node. The same seed gives the same effects.
func TestCoreLives(t *testing.T) {
	writes, asked, claims := 0, 0, 0
	for seed := range uint64(60) {
		all := live(t, seed, 100)
		for _, f := range all {
			switch f := f.(type) {
			case PatchNode:
				writes++
				if f.patch.claims() {
					claims++
				}
			case lease.AskUnderlay:
				asked++
			}
		}
		if seed < 10 && !reflect.DeepEqual(all, live(t, seed, 100)) {
			t.Errorf("seed %d: two lives are not alike", seed)
		}
	}
	if writes < 1000 || asked < 200 || claims < 100 {
		t.Errorf("%d writes, %d questions and %d claims: the lives are dull", writes, asked, claims)
	}
}
