package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weft/lease"
	"weft/lease/keeper"
)

// nobody is the author of what an operator writes.
const nobody = -1

// entry is a key of the store. It never changes: a write makes another one.
type entry struct {
	lease.Subnets
	attrs             lease.Attrs
	bad               bool // the value does not parse
	revision, created int64
	expires           time.Duration // true time; 0 for never
	author            int           // the machine that wrote it, or nobody
	by                *process      // the author's when it did
}

// image is what the store has at one revision. It never changes.
type image struct {
	cluster  string
	revision int64
	config   []byte
	entries  []*entry // by subnets
}

// find looks for a key.
func (i *image) find(s lease.Subnets) *entry {
	at, found := slices.BinarySearchFunc(i.entries, s, func(e *entry, s lease.Subnets) int {
		return e.Compare(s)
	})
	if !found {
		return nil
	}
	return i.entries[at]
}

// with is the image after a write of e, or after its removal if gone is set.
func (i *image) with(e *entry, gone bool) *image {
	next := *i
	next.revision++
	at, found := slices.BinarySearchFunc(i.entries, e.Subnets, func(f *entry, s lease.Subnets) int {
		return f.Compare(s)
	})
	next.entries = slices.Clone(i.entries)
	switch {
	case gone && found:
		next.entries = slices.Delete(next.entries, at, at+1)
	case gone:
	case found:
		e.revision, e.created = next.revision, i.entries[at].created
		next.entries[at] = e
	default:
		e.revision, e.created = next.revision, next.revision
		next.entries = slices.Insert(next.entries, at, e)
	}
	return &next
}

// letter is a message in the store.
type letter struct {
	lease.Message
	ends time.Duration
}

// The store is a model of etcd as lease/etcd uses it: one revision for all writes, compare-and-swap, leases
// that end in true time, and watches that a member serves as late as it likes, but in order. Requests are
// answered by a quorum, so what they read is never old.
type store struct {
	now      *image
	backup   *image
	clusters int // how many there were
	mail     []letter

	down, readOnly bool
	wanted         []byte // the configuration that an operator would put there

	gone  map[lease.Subnets]time.Duration // when a record was last removed by somebody who may
	fresh []novelty                       // records that were new to their owners
	// records that were deleted with the configuration, which is not back
	emptied []lease.Subnets
	lost    []lost // those that the store had before it went back

	lostNodes []lostNode // likewise, of Kubernetes
}

// novelty is a record that was new to its owner.
type novelty struct {
	lease.Subnets
	node string
	at   time.Duration
}

// lost is a record that a store had at some time.
type lost struct {
	*entry
	cluster string
}

func newStore(config []byte) *store {
	first := &image{cluster: "c1", revision: 1, config: config}
	return &store{now: first, backup: first, clusters: 1, wanted: config,
		gone: map[lease.Subnets]time.Duration{}}
}

var (
	errDown     = errors.New("no endpoint answers")
	errReadOnly = errors.New("the store is out of space")
	errTimeout  = errors.New("the answer did not come in time")
	errStopped  = errors.New("weftd was told to stop")
)

// set makes next what the store has, and has all watches told.
func (c *Cluster) set(next *image) {
	st := c.store
	st.now = next
	st.lost = slices.DeleteFunc(st.lost, func(l lost) bool {
		if next.cluster != l.cluster || next.revision < l.created {
			return false
		}
		st.gone[l.Subnets] = c.now // whoever did not look meanwhile cannot tell that the store went back
		return true
	})
	c.changed()
}

// lose notes what the store has before it becomes another one.
func (st *store) lose() {
	for _, e := range st.now.entries {
		st.lost = append(st.lost, lost{e, st.now.cluster})
	}
}

// put writes a record. author is who did it.
func (c *Cluster) put(s lease.Subnets, a lease.Attrs, ttl time.Duration, author int) int64 {
	st := c.store
	e := &entry{Subnets: s, attrs: a, author: author}
	if author != nobody {
		e.by = c.machines[author].process
	}
	if ttl > 0 {
		e.expires = c.now + ttl
		c.at(e.expires, func() { c.sweep() })
	}
	if was := st.now.find(s); was == nil || was.attrs.Node() != a.Node() {
		st.fresh = append(st.fresh, novelty{s, a.Node(), c.now})
		if was != nil {
			st.gone[s] = c.now
		}
	}
	c.set(st.now.with(e, false))
	return st.now.revision
}

// remove deletes a record, as somebody does who may.
func (c *Cluster) remove(e *entry) {
	c.store.gone[e.Subnets] = c.now
	c.set(c.store.now.with(e, true))
}

// sweep drops the records that have ended.
func (c *Cluster) sweep() {
	for _, e := range c.store.now.entries {
		if e.expires != 0 && e.expires <= c.now {
			c.log("store: %s ends", e.Subnets)
			if o := c.holder(e); o != nil && c.now > max(o.disturbed, c.shaken, o.process.began)+2*time.Hour {
				c.fail("leases are renewed in time", "%s of m%d ends, which lives and was heard for two hours",
					e.Subnets, o.index)
			}
			c.remove(e)
		}
	}
}

// snapshot is what machine m reads out of an image. It knows when leases end that it wrote, and of those that
// were written after listed.
func (c *Cluster) snapshot(m *machine, i *image, listed int64) lease.Snapshot {
	s := lease.Snapshot{ClusterID: i.cluster, Revision: i.revision, Config: i.config}
	s.Records = make([]*lease.Record, 0, len(i.entries))
	for _, e := range i.entries {
		if e.bad {
			s.Bad = append(s.Bad, lease.Rejected{Key: e.Key(), Reason: lease.RejectValue, Detail: "it is no JSON",
				Revision: e.revision})
			continue
		}
		r := &lease.Record{Subnets: e.Subnets, Attrs: e.attrs, Reservation: e.expires == 0, Revision: e.revision,
			Created: e.created}
		if e.expires != 0 && (e.revision > listed || e.by != nil && e.by == m.process) {
			r.Expires = m.clock(c.now).Add(e.expires - c.now)
		}
		s.Records = append(s.Records, r)
	}
	return s
}

// serve does an operation for machine m.
func (c *Cluster) serve(m *machine, op keeper.Operation) (r keeper.Result) {
	c.sweep()
	st := c.store
	switch op.(type) {
	case keeper.ReadStore, keeper.ReadRemaining:
	default:
		if st.readOnly {
			return keeper.Result{Err: errReadOnly}
		}
	}
	switch op := op.(type) {
	case keeper.ReadStore:
		r.Snapshot = c.snapshot(m, st.now, st.now.revision)
	case keeper.WriteRecord:
		was := st.now.find(op.Subnets)
		if was == nil && op.IfRevision != 0 || was != nil && was.revision != op.IfRevision {
			return keeper.Result{Err: lease.ErrConflict}
		}
		c.written(m, was, op)
		r.Revision = c.put(op.Subnets, op.Attrs, op.TTL, m.index)
	case keeper.ReplaceRecord:
		was := st.now.find(op.Old)
		if was == nil || was.revision != op.OldRevision || st.now.find(op.Subnets) != nil {
			return keeper.Result{Err: lease.ErrConflict}
		}
		c.replaced(m, was, op.Subnets)
		st.gone[was.Subnets] = c.now
		st.now = st.now.with(was, true)
		st.now.revision-- // both at one revision
		r.Revision = c.put(op.Subnets, op.Attrs, op.TTL, m.index)
	case keeper.DeleteRecord:
		was := st.now.find(op.Subnets)
		if was == nil || was.revision != op.IfRevision {
			return keeper.Result{Err: lease.ErrConflict}
		}
		c.removed(m, was)
		c.came(ToRelease, m)
		c.remove(was)
	case keeper.ReadRemaining:
		if was := st.now.find(op.Subnets); was != nil && was.expires != 0 {
			r.Remaining = was.expires - c.now
		}
	case keeper.WriteConfig:
		if st.now.config == nil {
			c.configure(op.Config)
		}
	case keeper.SendMessage:
		c.tell(op.Message)
	}
	return r
}

// configure makes config the network configuration; nil deletes it.
func (c *Cluster) configure(config []byte) {
	next := *c.store.now
	next.revision++
	next.config = config
	if config != nil { // whoever looks now for the first time sees nothing wrong with what is missing
		for _, s := range c.store.emptied {
			c.store.gone[s] = c.now
		}
		c.store.emptied = nil
	}
	c.set(&next)
}

// tell leaves a message in the place of what its sender said before.
func (c *Cluster) tell(m lease.Message) {
	st := c.store
	st.mail = slices.DeleteFunc(st.mail, func(l letter) bool {
		return l.ends <= c.now || l.To == m.To && l.From == m.From
	})
	st.mail = append(st.mail, letter{m, c.now + lease.MessageTTL})
	for _, to := range c.machines {
		if to.listens(m.To) {
			c.deliverMail(to, m)
		}
	}
}

// operate does to the store what an operator or a disaster does.
func (c *Cluster) operate(o Op, m *machine) {
	if c.api != nil {
		c.operateNodes(o, m)
		return
	}
	st := c.store
	own := c.recordOf(m)
	switch o.Do {
	case Compact:
		c.breakWatches()
	case Config:
		st.wanted = []byte(configs[o.N%len(configs)])
		c.configure(st.wanted)
	case ConfigGone:
		if o.N%2 == 1 { // etcdctl del --prefix
			next := *st.now
			next.entries = nil
			for _, e := range st.now.entries {
				st.emptied = append(st.emptied, e.Subnets)
			}
			st.now = &next
		}
		c.configure(nil)
		c.at(c.now+o.For, func() { c.putConfigBack() })
	case Backup:
		st.backup = st.now
	case Restore:
		next := *st.backup
		st.lose()
		if o.N%2 == 1 {
			st.clusters++
			next.cluster = fmt.Sprint("c", st.clusters)
		}
		next.entries = slices.Clone(next.entries)
		for i, e := range next.entries { // leases begin anew
			f := *e
			if f.expires != 0 {
				f.expires = c.now + lease.TTL
				c.at(f.expires, func() { c.sweep() })
			}
			next.entries[i] = &f
			st.fresh = append(st.fresh, novelty{f.Subnets, f.attrs.Node(), c.now})
			st.gone[f.Subnets] = c.now
		}
		for _, s := range st.emptied { // whose configuration is back
			st.gone[s] = c.now
		}
		st.now, st.mail, st.emptied = &next, nil, nil
		c.breakWatches()
	case Wipe:
		st.lose()
		st.clusters++
		st.now, st.mail = &image{cluster: fmt.Sprint("c", st.clusters), revision: 1}, nil
		c.breakWatches()
		c.at(c.now+o.For, func() { c.putConfigBack() })
	case Delete:
		if own != nil {
			c.remove(own)
		}
	case Scribble:
		if own == nil {
			return
		}
		a := own.attrs
		switch w := *a.Weft; o.N % 4 {
		case 0:
			c.st(own, &entry{Subnets: own.Subnets, bad: true, author: nobody, expires: own.expires})
			return
		case 1: // as flannel writes it, from elsewhere
			a.Weft, a.PublicIP = nil, strangerAddr(o.N)
		case 2:
			w.Node, w.State, a.Weft, a.PublicIP = "stranger", "", &w, strangerAddr(o.N)
		case 3:
			w.State, a.Weft, a.PublicIP = "elsewhere", &w, strangerAddr(o.N)
		}
		c.put(own.Subnets, a, lease.TTL, nobody)
	case Reserve:
		if own != nil {
			c.put(own.Subnets, own.attrs, 0, nobody)
		}
	case Stranger:
		s, err := lease.ParseKey(fmt.Sprintf("10.244.%d.0-24", 1+o.N))
		if err == nil && st.now.find(s) == nil {
			c.put(s, lease.Attrs{PublicIP: strangerAddr(o.N), Weft: &lease.Weft{Node: fmt.Sprint("stranger-", o.N)}},
				lease.TTL, nobody)
		}
	default: // is a machine's
	}
}

// st puts e in the place of was.
func (c *Cluster) st(was, e *entry) {
	c.store.gone[was.Subnets] = c.now
	c.set(c.store.now.with(e, false))
}

// putConfigBack writes the configuration that there should be, if there is none.
func (c *Cluster) putConfigBack() {
	if c.store.now.config == nil {
		c.configure(c.store.wanted)
	}
}

// recordOf is the record that a machine has written and that is its still; nil for none.
func (c *Cluster) recordOf(m *machine) *entry {
	for _, e := range c.store.now.entries {
		if e.author == m.index && !e.bad {
			return e
		}
	}
	return nil
}

// describeStore says what the store has.
func (c *Cluster) describeStore() string {
	if c.api != nil {
		return describeNodes(c.api.now)
	}
	return describe(c.store.now)
}

func describe(i *image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s at %d, config %t:", i.cluster, i.revision, i.config != nil)
	for _, e := range i.entries {
		fmt.Fprintf(&b, " %s=%s@%s/%d", e.Subnets, e.attrs.Node(), e.attrs.Address(), e.revision)
	}
	return b.String()
}
