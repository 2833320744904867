package probe

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// world is nodes with a core each, and a network between them, in virtual time.
type world struct {
	t     *testing.T
	now   time.Time
	rng   *rand.Rand
	nodes []*node
	mail  []letter
	// lost decides about each packet; size is that of the inner packet.
	lost func(from, to *node, size int) bool
	// underLost is the same for the underlay alone.
	underLost func(from, to *node) bool
	delay     time.Duration
	kernel    bool // carries packets without weftd
}

type node struct {
	name        string
	addr, under netip.Addr
	core        *Core
	stalled     time.Time // until when nothing of the process runs: what comes for it waits
	// for how much longer packets to it and from it are on the way, since its data plane is hardly run
	slow    time.Duration
	frozen  bool // weftd does nothing; packets pass all the same if the kernel carries them
	flannel bool // has no weftd of ours
	gone    bool // the host
	old     bool // is of a version that gives no accounts
	got     *Matrix
	next    time.Time // what core.Next said after the last step
	lines   []Line
	sent    []time.Time
}

type letter struct {
	at    time.Time
	to    *node
	event Event
}

const simPort = 8286

func newWorld(t *testing.T, n int, seed uint64) *world {
	w := &world{t: t, now: time.Unix(1_700_000_000, 0), rng: rand.New(rand.NewPCG(seed, 1)),
		delay: 300 * time.Microsecond,
		lost:  func(*node, *node, int) bool { return false }, underLost: func(*node, *node) bool { return false }}
	for i := range n {
		w.nodes = append(w.nodes, &node{name: fmt.Sprintf("n%d", i),
			addr:  netip.AddrFrom4([4]byte{10, 1, byte(i), 0}),
			under: netip.AddrFrom4([4]byte{192, 168, 0, byte(i)}), core: NewCore(w.rng.Uint64)})
	}
	return w
}

// meet tells every node of all others.
func (w *world) meet(mtu int) {
	for _, n := range w.nodes {
		var ways []Way
		for _, o := range w.nodes {
			if o == n {
				continue
			}
			way := Way{Peer: o.name, Addr: o.addr, Port: simPort, Under: o.under, MTU: mtu}
			if o.flannel || n.flannel {
				way.Port = 0
			}
			ways = append(ways, way)
		}
		if !n.flannel {
			w.do(n, Known{ways})
		}
	}
}

func (w *world) byAddr(a netip.Addr) *node {
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return n.addr == a || n.under == a })
	return w.nodes[i]
}

// carries reports whether n forwards what comes in for it by the overlay.
func (w *world) carries(n *node) bool { return !n.gone && (!n.frozen || w.kernel) }

func (w *world) do(n *node, e Event) {
	if n.frozen || n.gone {
		return
	}
	effects := n.core.Step(w.now, e)
	n.next = n.core.Next()
	for _, f := range effects {
		switch f := f.(type) {
		case Say:
			n.lines = append(n.lines, f.Line)
		case Gathered:
			n.got = &f.Matrix
		case Send:
			n.sent = append(n.sent, w.now)
			to := w.byAddr(f.To.Addr())
			if n.old {
				f.Data[7] = 0
			}
			if to.old && Kind(f.Data[6]) > Answer {
				continue
			}
			if w.carries(to) && !w.lost(n, to, len(f.Data)+28) {
				w.mail = append(w.mail, letter{w.now.Add(w.delay + max(n.slow, to.slow)), to,
					Heard{netip.AddrPortFrom(n.addr, simPort), f.Data}})
			}
		case Echo:
			n.sent = append(n.sent, w.now)
			to := w.byAddr(f.To)
			size := max(f.Size, 36)
			if f.Under && !to.gone && !w.underLost(n, to) && !w.underLost(to, n) ||
				!f.Under && w.carries(to) && !w.lost(n, to, size) && !w.lost(to, n, size) {
				w.mail = append(w.mail, letter{w.now.Add(2*w.delay + max(n.slow, to.slow)), n,
					Echoed{From: f.To, Nonce: f.Nonce}})
			}
		}
	}
}

// run lets that much time pass.
func (w *world) run(d time.Duration) {
	end := w.now.Add(d)
	for {
		next, at := end, -1
		for i, l := range w.mail {
			if l.to.stalled.After(l.at) {
				l.at = l.to.stalled.Add(time.Millisecond)
			}
			if l.at.Before(next) {
				next, at = l.at, i
			}
		}
		var who *node
		for _, n := range w.nodes {
			if n.frozen || n.gone || n.flannel {
				continue
			}
			t := n.next
			if !t.IsZero() && t.Before(n.stalled) {
				t = n.stalled
			}
			if !t.IsZero() && t.Before(next) {
				next, who = t, n
			}
		}
		if next.After(w.now) {
			w.now = next
		}
		switch {
		case who != nil:
			w.do(who, Tick{})
		case at >= 0:
			l := w.mail[at]
			w.mail = slices.Delete(w.mail, at, at+1)
			if !l.to.flannel {
				w.do(l.to, l.event)
			}
		default:
			return
		}
	}
}

// of is what n knows of o.
func (n *node) of(o *node) State {
	for _, s := range n.core.States() {
		if s.Addr == o.addr {
			return s
		}
	}
	return State{}
}

// until runs until ok, for at most so long, and returns how long it took.
func (w *world) until(most time.Duration, ok func() bool) time.Duration {
	w.t.Helper()
	began := w.now
	for !ok() {
		if w.now.Sub(began) > most {
			w.t.Fatalf("not so after %v", most)
		}
		w.run(100 * time.Millisecond)
	}
	return w.now.Sub(began)
}
