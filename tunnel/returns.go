package tunnel

import (
	"sync/atomic"
	"time"
)

// Sizes of a table of return entries, in sets of ways entries. It has memory from the first entry on, and grows while a set is full of entries that
// are in use: to 128 KB for a pod or a peer, which are 8192 flows.
const (
	returnWays    = 8
	firstSets     = 16
	growthOfSets  = 8
	mostSets      = firstSets * growthOfSets * growthOfSets
	returnHandOff = 2 // seconds for which the table before a larger one is still read
)

// How long an entry is kept after a packet of its flow, in seconds: at least as long as the host's connection tracking keeps its own by
// default, which the host needs to translate the answers. Where a table is full the entry goes that would be the next to end, so a flood of
// half-open connections and of datagrams ends before any connection does.
const (
	lifeTCP      = 5 * 24 * 3600
	lifeHalfOpen = 200
	lifeClosing  = 120
	lifeReset    = 10
	lifeUDP      = 180
	lifeEcho     = 30
	lifeFragment = 10
	lifeOther    = 600
)

// returns are the flows that one client, a pod of this node or a peer, has opened by way of the host's rules: packets that the host's TUN handed back with
// an address translated (DNAT for a Service). Answers belong to the host's TUN, where the host translates them back. An entry is a tag,
// the keyed hash of the answers' addresses, ports and protocol, and how long it is good for. Each client has its own, so that whoever opens many
// takes nobody else's place. Its zero value is empty. Any worker may read and write it; none waits.
type returns struct{ table atomic.Pointer[returnTable] }

// returns are the entries of a peer's flows; nil for a sender that is no peer (CheckOff).
func (p *Peer) returns() *returns {
	if p == nil {
		return nil
	}
	return &p.state.returns
}

type returnTable struct {
	sets   []returnSet // a power of two
	before atomic.Pointer[returnTable]
	made   int64 // seconds
}

type returnSet [returnWays]returnEntry

// returnEntry is free if its tag is 0. Whoever takes it swaps the tag; life follows.
type returnEntry struct {
	tag  atomic.Uint64
	life atomic.Uint64 // until when it is good, in seconds, times two; plus one once the connection is ending
}

func seconds(now int64) int64 { return now / int64(time.Second) }

func (t *returnTable) set(tag uint64) *returnSet { return &t.sets[tag>>8&uint64(len(t.sets)-1)] }

func (s *returnSet) find(tag uint64, sec int64) *returnEntry {
	for i := range s {
		if e := &s[i]; e.tag.Load() == tag && e.until() > sec {
			return e
		}
	}
	return nil
}

func (t *returnTable) find(tag uint64, sec int64) *returnEntry {
	if t == nil {
		return nil
	}
	if e := t.set(tag).find(tag, sec); e != nil {
		return e
	}
	if b := t.before.Load(); b != nil {
		return b.set(tag).find(tag, sec)
	}
	return nil
}

func (e *returnEntry) until() int64 { return int64(e.life.Load() >> 1) }

// touch lengthens the life of e by what a packet of f says.
func (e *returnEntry) touch(f *flow, sec int64) {
	ending := e.life.Load()&1 != 0
	life := f.life()
	switch {
	case f.opens():
		ending = false
	case f.ends():
		ending = true
	case ending && life > lifeClosing:
		life = lifeClosing
	}
	v := uint64(sec+life) << 1
	if ending {
		v |= 1
	}
	if e.life.Load() != v { // at most once a second for most packets
		e.life.Store(v)
	}
}

// open enters f, as its answers are, or lengthens its entry. It allocates only when the table grows.
func (r *returns) open(tag uint64, f *flow, sec int64) {
	for range 4 { // others may take what we chose
		t := r.table.Load()
		if t == nil {
			if !r.table.CompareAndSwap(nil, &returnTable{sets: make([]returnSet, firstSets), made: sec}) {
				continue
			}
			t = r.table.Load()
		}
		if t.made+returnHandOff < sec && t.before.Load() != nil {
			t.before.Store(nil)
		}
		s := t.set(tag)
		if e := s.find(tag, sec); e != nil {
			e.touch(f, sec)
			return
		}
		e := s.oldest()
		was := e.tag.Load()
		if was != 0 && e.until() > sec && len(t.sets) < mostSets {
			r.grow(t, sec)
			continue
		}
		if e.tag.CompareAndSwap(was, tag) {
			e.life.Store(0)
			e.touch(f, sec)
			return
		}
	}
}

// oldest is the entry of s that ends next; a free one before all.
func (s *returnSet) oldest() *returnEntry {
	e := &s[0]
	for i := range s {
		if s[i].tag.Load() == 0 {
			return &s[i]
		}
		if s[i].until() < e.until() {
			e = &s[i]
		}
	}
	return e
}

// grow puts a larger table in the place of t. What others enter into t meanwhile is found there for a while.
func (r *returns) grow(t *returnTable, sec int64) {
	n := &returnTable{sets: make([]returnSet, len(t.sets)*growthOfSets), made: sec}
	for i := range t.sets {
		for k := range t.sets[i] {
			was := &t.sets[i][k]
			if tag := was.tag.Load(); tag != 0 && was.until() > sec {
				e := n.set(tag).oldest()
				e.life.Store(was.life.Load())
				e.tag.Store(tag)
			}
		}
	}
	n.before.Store(t)
	if r.table.CompareAndSwap(t, n) {
		t.before.Store(nil)
	}
}

// forget takes the entry of that tag away, if there is one.
func (r *returns) forget(tag uint64, sec int64) {
	t := r.table.Load()
	for range 2 { // the table before may have it as well
		if e := t.find(tag, sec); e != nil {
			e.tag.CompareAndSwap(tag, 0)
		}
	}
}
