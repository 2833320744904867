package tunnel

import (
	"cmp"
	"net/netip"
	"slices"
)

// One peer at full rate can fill the receive queue that all share, and then the kernel drops everybody's
// packets alike, before any of them is read. So a peer that takes more than its share of a full queue is let
// through only in part, by a filter in front of the queue.
const (
	// A queue is full, and nearly empty, at these parts of its size. The kernel gives back up to a quarter of a
	// UDP socket's late (udp_rmem_release).
	queueFull, queueEmpty = 0.5, 0.3
	// fullTicks is for how many ticks in a row the queue must be full before anybody is held back, since bursts
	// fill it too. emptyTicks is for how many it must be nearly empty before more is let through, since letting
	// in too much costs the others packets until it is taken back.
	fullTicks, emptyTicks = 3, 5
	// leastShare is the smallest part let through: a peer is never cut off.
	leastShare = 1.0 / 64
	// maxHeld bounds the outer sources that the filter of a port compares with.
	maxHeld = 8
)

// arrival is what one peer sent since the tick before.
type arrival struct {
	addr    netip.Addr // who: the peer's outer address
	sources int        // how many outer addresses it sends from, at most
	packets uint64
	active  bool // it sent something lately
}

// heldPeer is a peer of whose packets only a share is let through.
type heldPeer struct {
	addr    netip.Addr
	sources int
	share   float64 // from leastShare to below 1
}

// fairness decides for one port whose packets are held back. It is pure, and not safe for concurrent use.
type fairness struct {
	full, empty int // ticks in a row
	held        []heldPeer
}

// tick takes in how full the queue is, from 0 to 1, and what every peer sent since the tick before. It
// reports whether held is another now. from is reordered.
func (f *fairness) tick(fill float64, from []arrival) (changed bool) {
	active, total := 0, uint64(0)
	for _, a := range from {
		total += a.packets
		if a.active {
			active++
		}
	}
	if active < 2 { // nobody is harmed
		return f.release()
	}
	switch {
	case fill > queueFull:
		f.full, f.empty = f.full+1, 0
	case fill < queueEmpty:
		f.full, f.empty = 0, f.empty+1
	default:
		f.full, f.empty = 0, 0
	}
	gone := len(f.held)
	f.held = slices.DeleteFunc(f.held, func(h heldPeer) bool {
		return !slices.ContainsFunc(from, func(a arrival) bool { return a.addr == h.addr })
	})
	changed = len(f.held) != gone
	switch {
	case f.full >= fullTicks || f.full > 0 && len(f.held) > 0:
		return f.lower(from, total, active) || changed
	case f.empty >= emptyTicks && len(f.held) > 0:
		f.empty = 0
		f.raise()
		return true
	}
	return changed
}

// lower halves what is let through of each peer that sent clearly more than an equal share of what was read.
func (f *fairness) lower(from []arrival, total uint64, active int) (changed bool) {
	slices.SortFunc(from, func(a, b arrival) int { return cmp.Compare(b.packets, a.packets) })
	sources := 0
	for _, h := range f.held {
		sources += h.sources
	}
	for _, a := range from {
		if a.packets*uint64(active)*8 <= total*9 {
			break
		}
		i := slices.IndexFunc(f.held, func(h heldPeer) bool { return h.addr == a.addr })
		switch {
		case i < 0 && sources+a.sources <= maxHeld:
			f.held = append(f.held, heldPeer{a.addr, a.sources, 0.5})
			sources += a.sources
			changed = true
		case i >= 0 && f.held[i].share > leastShare:
			f.held[i].share = max(leastShare, f.held[i].share/2)
			changed = true
		}
	}
	return changed
}

// raise lets half as much again through, and forgets the peers of which that is all.
func (f *fairness) raise() {
	for i := range f.held {
		f.held[i].share *= 1.5
	}
	f.held = slices.DeleteFunc(f.held, func(h heldPeer) bool { return h.share >= 1 })
}

// release lets everything through. It reports whether it did not before.
func (f *fairness) release() bool {
	had := len(f.held) > 0
	*f = fairness{held: f.held[:0]}
	return had
}
