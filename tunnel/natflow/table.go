package natflow

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync/atomic"
	"time"

	"weft/encap"
)

const (
	// ways is how many entries a set has, and setCount how many sets there are: 262,144 flows in 4
	// MiB. That is the default nf_conntrack_max of a host with more than 4 GiB, and the host's table bounds
	// what is worth an entry.
	ways     = 8
	setCount = 1 << 15
)

// How long an entry is kept after a packet of its flow, in seconds: at least as long as the host's
// connection tracking keeps its own by default, which the host needs to translate the answers. In a full
// set the entry that ends next gives way, so a flood of half-open connections and of datagrams ends before
// any connection does; and it is one of the client that has most entries there.
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

// Table has the flows that clients, pods of this node or of a peer, have opened by way of the host's rules:
// packets that the host's TUN handed back with an address translated (DNAT for a Service). Their answers
// belong to the host's TUN, where the host translates them back. An entry is a tag, the keyed hash of the
// answers' addresses, ports and protocol, and how long it is good for. The table has memory from the first
// entry on, and its size is fixed. Any goroutine may read and write it; none waits. Only the first entry
// allocates.
type Table struct {
	seed maphash.Seed // without it nobody can make up two flows of one tag
	sets atomic.Pointer[sets]
}

// New returns an empty table.
func New() *Table { return &Table{seed: maphash.MakeSeed()} }

// Empty reports whether nothing was ever entered.
func (t *Table) Empty() bool { return t.sets.Load() == nil }

// Knows reports whether the client with that address may have entries.
func (t *Table) Knows(client netip.Addr) bool {
	s := t.sets.Load()
	return s != nil && s.has(client)
}

// Opened enters the flow of packet b of a client, which the host has handed back at now (Unix nanoseconds).
func (t *Table) Opened(b []byte, in *encap.Inner, now int64) {
	if f, ok := flowOf(b, in); ok && f.asks && f.kind == flowWhole {
		t.enter(f.reversed(), seconds(now))
	}
}

// Answers reports whether packet b answers a flow that has an entry, which lasts longer then.
func (t *Table) Answers(b []byte, in *encap.Inner, now int64) bool {
	f, ok := flowOf(b, in)
	if !ok {
		return false
	}
	sec := seconds(now)
	tag := f.tag(t.seed)
	e := t.sets.Load().find(tag, sec)
	if e == nil {
		return false
	}
	if f.kind == flowWhole {
		e.touch(tag, &f, sec)
	}
	if in.MoreFragments && in.FragOffset == 0 { // the others follow it
		t.enter(fragmentOf(b, in), sec)
	}
	return true
}

// Bypassed takes the entry of packet b's flow away, since its client sends it straight.
func (t *Table) Bypassed(b []byte, in *encap.Inner, now int64) {
	if f, ok := flowOf(b, in); ok && f.asks && f.kind == flowWhole {
		back := f.reversed()
		t.forget(back.tag(t.seed), seconds(now))
	}
}

func (t *Table) enter(f flow, sec int64) { t.open(f.tag(t.seed), &f, sec) }

type sets struct {
	all []set // a power of two
	// clients has a bit for each owner of an entry. It is never cleared: it only saves the search for the
	// others.
	clients [1 << ownerBits / 64]atomic.Uint64
}

func newSets(n int) *sets { return &sets{all: make([]set, n)} }

type set [ways]entry

// entry is free if its life is over. Whoever takes it claims the life first: the tag is another's only
// while nobody else can take the entry, and nobody who knows the old tag can lengthen the life of the new
// one.
type entry struct {
	tag atomic.Uint64
	// until when it is good, in seconds, times two, plus one once the connection is ending; above that whose it
	// is; or claimed
	life atomic.Uint64
}

// ownerBits is how many bits of a life, the upper ones, say which address the flow is of.
const ownerBits = 16

// ownerOf tells the client that the answers are for from others, by its address; as the upper bits of a life.
func ownerOf(a netip.Addr) uint64 {
	b := a.As16()
	// the upper bits of the product depend on all of the address' lower ones
	return binary.BigEndian.Uint64(b[8:]) * 0x9e3779b97f4a7c15 >> (64 - ownerBits) << (64 - ownerBits)
}

const untilMask = 1<<(64-ownerBits) - 1

// claimed is the life of an entry that is somebody's whose tag is not in it yet.
const claimed = ^uint64(0)

func seconds(now int64) int64 { return now / int64(time.Second) }

func (t *sets) set(tag uint64) *set { return &t.all[tag>>8&uint64(len(t.all)-1)] }

func (s *set) find(tag uint64, sec int64) *entry {
	for i := range s {
		if e := &s[i]; e.tag.Load() == tag && good(e.life.Load(), sec) {
			return e
		}
	}
	return nil
}

// good says whether an entry with that life has a flow.
func good(life uint64, sec int64) bool { return life != claimed && until(life) > sec }

func until(life uint64) int64 { return int64(life & untilMask >> 1) }

func (t *sets) find(tag uint64, sec int64) *entry {
	if t == nil {
		return nil
	}
	return t.set(tag).find(tag, sec)
}

// client is the word of clients with the bit of an owner.
func (t *sets) client(owner uint64) (word *atomic.Uint64, bit uint64) {
	n := owner >> (64 - ownerBits)
	return &t.clients[n/64], 1 << (n % 64)
}

// has says whether the client with that address may have entries.
func (t *sets) has(client netip.Addr) bool {
	word, bit := t.client(ownerOf(client))
	return word.Load()&bit != 0
}

// touch lengthens the life of e, if it still has that tag, by what a packet of f says.
func (e *entry) touch(tag uint64, f *flow, sec int64) {
	for {
		was := e.life.Load()
		if was == claimed || e.tag.Load() != tag {
			return
		}
		life := f.lengthen(was, sec)
		if life == was || e.life.CompareAndSwap(was, life) { // it changes at most once a second for most packets
			return
		}
	}
}

// lengthen is what a packet of f makes of the life of its entry.
func (f *flow) lengthen(was uint64, sec int64) uint64 {
	ending := was&1 != 0
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
	return v | was&^untilMask
}

// open enters f, as its answers are, or lengthens its entry. It allocates only the table.
func (t *Table) open(tag uint64, f *flow, sec int64) {
	all := t.sets.Load()
	if all == nil {
		t.sets.CompareAndSwap(nil, newSets(setCount))
		all = t.sets.Load()
	}
	owner := ownerOf(f.dst)
	if word, bit := all.client(owner); word.Load()&bit == 0 {
		word.Or(bit)
	}
	s := all.set(tag)
	for range 4 + ways { // others may take what we chose
		if e := s.find(tag, sec); e != nil {
			e.touch(tag, f, sec)
			return
		}
		e, life := s.oldest()
		if good(life, sec) {
			e, life = s.most(owner, sec)
		}
		if e.claim(life) {
			e.give(tag, f.lengthen(owner, sec))
			return
		}
	}
}

// oldest is the entry of s that ends next, and its life.
func (s *set) oldest() (e *entry, life uint64) {
	e, life = &s[0], s[0].life.Load()
	for i := range s {
		if l := s[i].life.Load(); until(l) < until(life) {
			e, life = &s[i], l
		}
	}
	return e, life
}

// most is the entry that gives way, in a full set, to a flow of owner, and its life: of the client that
// would have most entries then, the one that ends next. So a client that opens many flows takes its own
// places, and the others keep theirs, down to one.
func (s *set) most(owner uint64, sec int64) (e *entry, life uint64) {
	var lives [ways]uint64
	for i := range s {
		lives[i] = s[i].life.Load()
	}
	best := -1
	for i, l := range lives {
		if l == claimed {
			continue
		}
		has := 0
		if l&^untilMask == owner {
			has = 1
		}
		for _, other := range lives {
			if other != claimed && (other^l)&^untilMask == 0 {
				has++
			}
		}
		if !good(l, sec) {
			has = ways + 1 // it is free by now
		}
		if has > best || has == best && until(l) < until(life) {
			best, e, life = has, &s[i], l
		}
	}
	if e == nil { // all are being given away at this moment
		return &s[0], claimed
	}
	return e, life
}

// claim takes an entry of that life from whoever has it. It is false if somebody was quicker.
func (e *entry) claim(life uint64) bool {
	return life != claimed && e.life.CompareAndSwap(life, claimed)
}

// give gives an entry that was claimed to the flow of that tag.
func (e *entry) give(tag, life uint64) {
	e.tag.Store(tag)
	e.life.Store(life)
}

// forget takes the entry of that tag away, if there is one: it is free at once.
func (t *Table) forget(tag uint64, sec int64) {
	if e := t.sets.Load().find(tag, sec); e != nil {
		life := e.life.Load()
		if e.tag.Load() == tag && good(life, sec) {
			e.life.CompareAndSwap(life, 0) // who touches it at this moment comes after
		}
	}
}
