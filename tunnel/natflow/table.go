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
	// A table has setCount sets of ways entries: 262,144 flows in 4 MiB. That is the default nf_conntrack_max of
	// a host with more than 4 GiB, and the host cannot translate more flows than that.
	ways     = 8
	setCount = 1 << 15
)

// Life of an entry after a packet of its flow, in seconds. It is at least as long as the host's connection
// tracking keeps the flow by default. In a full set the client with the most entries loses the one that ends
// next. Half-open connections and datagrams therefore go before established connections do.
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

// Table has the flows that the host's NAT translated: the host's TUN returned a packet of a local or remote
// pod with another destination (DNAT of a Service). Replies must go to the host's TUN, where the host
// translates them back.
//
// An entry is a tag, which is the keyed hash of the replies' addresses, ports and protocol, and an expiry
// time. The table has a fixed size. It is allocated at the first entry, and nothing else allocates. Table is
// safe for concurrent use and lock-free.
type Table struct {
	seed maphash.Seed // secret, so that nobody can construct two flows with the same tag
	sets atomic.Pointer[sets]
}

// New returns an empty table.
func New() *Table { return &Table{seed: maphash.MakeSeed()} }

// Empty reports whether the table never had an entry.
func (t *Table) Empty() bool { return t.sets.Load() == nil }

// Knows reports whether the client may have entries. It may return true for a client without any.
func (t *Table) Knows(client netip.Addr) bool {
	s := t.sets.Load()
	return s != nil && s.has(client)
}

// Opened enters the flow of a client's packet b that the host returned. now is in Unix nanoseconds.
func (t *Table) Opened(b []byte, in *encap.Inner, now int64) {
	if f, ok := flowOf(b, in); ok && f.asks && f.kind == flowWhole {
		t.enter(f.reversed(), seconds(now))
	}
}

// Answers reports whether packet b is a reply of an entered flow, and extends the entry's life.
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
	if in.MoreFragments && in.FragOffset == 0 { // the other fragments must follow it
		t.enter(fragmentOf(b, in), sec)
	}
	return true
}

// Bypassed deletes the flow of packet b, which its client sends directly.
func (t *Table) Bypassed(b []byte, in *encap.Inner, now int64) {
	if f, ok := flowOf(b, in); ok && f.asks && f.kind == flowWhole {
		back := f.reversed()
		t.forget(back.tag(t.seed), seconds(now))
	}
}

func (t *Table) enter(f flow, sec int64) { t.open(f.tag(t.seed), &f, sec) }

type sets struct {
	all []set // length is a power of two
	// clients has a bit for each owner that ever had an entry. It is never cleared: it only saves lookups for
	// the other clients.
	clients [1 << ownerBits / 64]atomic.Uint64
}

func newSets(n int) *sets { return &sets{all: make([]set, n)} }

type set [ways]entry

// entry is free once its life is over. A writer claims the life before it changes the tag. So only one writer
// takes an entry, and a holder of the old tag cannot extend the life of the new flow.
type entry struct {
	tag atomic.Uint64
	// life is claimed, or owner<<48
	//
	// expiry in seconds<<1
	//
	// 1 if the connection is closing.
	life atomic.Uint64
}

// ownerBits is the number of upper bits of a life that identify the client.
const ownerBits = 16

// ownerOf returns a hash of the client's address in the upper ownerBits.
func ownerOf(a netip.Addr) uint64 {
	b := a.As16()
	// the upper bits of the product depend on all lower bits of the address
	return binary.BigEndian.Uint64(b[8:]) * 0x9e3779b97f4a7c15 >> (64 - ownerBits) << (64 - ownerBits)
}

const untilMask = 1<<(64-ownerBits) - 1

// claimed is the life of an entry while its tag changes.
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

// good reports whether an entry with that life has a flow.
func good(life uint64, sec int64) bool { return life != claimed && until(life) > sec }

func until(life uint64) int64 { return int64(life & untilMask >> 1) }

func (t *sets) find(tag uint64, sec int64) *entry {
	if t == nil {
		return nil
	}
	return t.set(tag).find(tag, sec)
}

// client returns the word and the bit of an owner in clients.
func (t *sets) client(owner uint64) (word *atomic.Uint64, bit uint64) {
	n := owner >> (64 - ownerBits)
	return &t.clients[n/64], 1 << (n % 64)
}

// has reports whether the client may have entries.
func (t *sets) has(client netip.Addr) bool {
	word, bit := t.client(ownerOf(client))
	return word.Load()&bit != 0
}

// touch extends the life of e after a packet of f, if e still has that tag.
func (e *entry) touch(tag uint64, f *flow, sec int64) {
	for {
		was := e.life.Load()
		if was == claimed || e.tag.Load() != tag {
			return
		}
		life := f.extended(was, sec)
		if life == was || e.life.CompareAndSwap(was, life) { // for most packets it changes at most once a second
			return
		}
	}
}

// extended returns the life of an entry after a packet of f.
func (f *flow) extended(was uint64, sec int64) uint64 {
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

// open enters f, or extends its entry. It allocates only the table.
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
	for range 4 + ways { // other goroutines may take the chosen entry
		if e := s.find(tag, sec); e != nil {
			e.touch(tag, f, sec)
			return
		}
		e, life := s.oldest()
		if good(life, sec) {
			e, life = s.victim(owner, sec)
		}
		if e.claim(life) {
			e.assign(tag, f.extended(owner, sec))
			return
		}
	}
}

// oldest returns the entry of s that ends next, and its life.
func (s *set) oldest() (e *entry, life uint64) {
	e, life = &s[0], s[0].life.Load()
	for i := range s {
		if l := s[i].life.Load(); until(l) < until(life) {
			e, life = &s[i], l
		}
	}
	return e, life
}

// victim returns the entry of a full set that gives way to a flow of owner, and its life. It is the entry
// that ends next of the client with the most entries, counting the new one. A client with many flows thus
// replaces its own, and others keep at least one.
func (s *set) victim(owner uint64, sec int64) (e *entry, life uint64) {
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
			has = ways + 1 // expired meanwhile
		}
		if has > best || has == best && until(l) < until(life) {
			best, e, life = has, &s[i], l
		}
	}
	if e == nil { // all are claimed at this moment
		return &s[0], claimed
	}
	return e, life
}

// claim claims an entry with that life. It returns false if another goroutine was faster.
func (e *entry) claim(life uint64) bool {
	return life != claimed && e.life.CompareAndSwap(life, claimed)
}

// assign stores the tag and life of a claimed entry.
func (e *entry) assign(tag, life uint64) {
	e.tag.Store(tag)
	e.life.Store(life)
}

// forget frees the entry with that tag.
func (t *Table) forget(tag uint64, sec int64) {
	if e := t.sets.Load().find(tag, sec); e != nil {
		life := e.life.Load()
		if e.tag.Load() == tag && good(life, sec) {
			e.life.CompareAndSwap(life, 0) // a concurrent touch wins
		}
	}
}
