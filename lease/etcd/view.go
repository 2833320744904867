package etcd

import (
	"crypto/sha256"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

// view is what the store holds, kept up to date from a list and events. It does no
// I/O and is not safe for concurrent use.
type view struct {
	keys    keys
	cluster string
	listed  int64 // revision of the last list; 0 before the first
	// config and records arrive on two watches, whose events are in order each but
	// not with the other's; so each has its own revision up to which it was seen.
	configSeen, recordsSeen int64
	// huge is the newest revision of a record that is too large to be received.
	huge   int64
	config []byte
	// entries are sorted by their names. A map of thousands would take twice the memory, and have to be sorted
	// for each snapshot; a list puts most of them at the end.
	entries []*entry
	recv    []string // the last record's
}

func newView(k keys) *view { return &view{keys: k} }

// reset replaces everything by a list that was read at revision.
func (v *view) reset(cluster string, revision int64, kvs []*mvccpb.KeyValue) {
	v.cluster, v.listed = cluster, revision
	v.configSeen, v.recordsSeen = revision, revision
	v.config, v.entries, v.huge = nil, make([]*entry, 0, len(kvs)), 0
	for _, kv := range kvs {
		v.put(kv)
	}
}

// from returns the revision at which a watch begins that has seen everything up to seen. It is seen itself,
// whose events come once more and change nothing: etcd answers no ping of a watch that begins at a
// revision which the store has not reached (since 3.4.25 and 3.5.8), so that a quiet store would look
// silent. Where a record of that revision cannot be received, the watch begins after it (see ahead).
func (v *view) from(seen int64) int64 {
	if seen == v.huge {
		return seen + 1
	}
	return seen
}

// ahead reports whether the watches may begin at a revision that the store has not reached.
func (v *view) ahead() bool { return v.recordsSeen == v.huge }

// apply takes over one event, unless the last list included it. It reports whether
// anything may have changed.
func (v *view) apply(e *mvccpb.Event) bool {
	key, rev := string(e.Kv.Key), e.Kv.ModRevision
	if rev <= v.listed {
		return false
	}
	switch {
	case key == v.keys.config:
		v.configSeen = max(v.configSeen, rev)
	case strings.HasPrefix(key, v.keys.subnets):
		v.recordsSeen = max(v.recordsSeen, rev)
	default:
		return false
	}
	if e.Type == mvccpb.DELETE {
		v.remove(key)
	} else {
		v.put(e.Kv)
	}
	return true
}

func (v *view) put(kv *mvccpb.KeyValue) {
	if key := string(kv.Key); key == v.keys.config {
		v.config = append([]byte{}, kv.Value...) // empty is not absent
	} else {
		e := v.keys.decode(kv)
		if e.record != nil && e.record.Weft != nil {
			v.intern(e.record.Weft)
		}
		v.enter(key, e)
	}
}

// intern has w share what nearly all nodes say alike.
func (v *view) intern(w *lease.Weft) {
	if slices.Equal(w.Recv, v.recv) {
		w.Recv = v.recv
	} else {
		v.recv = w.Recv
	}
}

// enter puts e in the place of what has the same name.
func (v *view) enter(key string, e entry) {
	e.name = entryName(key)
	if i, found := v.find(e.name); found {
		v.entries[i] = &e
	} else {
		v.entries = slices.Insert(v.entries, i, &e)
	}
}

// find is where an entry of that name is, or would be.
func (v *view) find(name string) (int, bool) {
	return slices.BinarySearchFunc(v.entries, name, func(e *entry, name string) int {
		return strings.Compare(e.name, name)
	})
}

// putHuge takes over a record without its value, which is too large to be received.
func (v *view) putHuge(kv *mvccpb.KeyValue) {
	v.huge = max(v.huge, kv.ModRevision)
	v.enter(string(kv.Key), v.keys.huge(kv))
}

// entryName is the key, or for a very long one, which is not a record's, a name that takes less memory.
func entryName(key string) string {
	if len(key) <= maxName {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxName] + string(sum[:])
}

func (v *view) remove(key string) {
	if key == v.keys.config {
		v.config = nil
	} else if i, found := v.find(entryName(key)); found {
		v.entries = slices.Delete(v.entries, i, i+1)
	}
}

// snapshot returns what the receiver may keep. It shares the records, which are never changed.
func (v *view) snapshot(x *expiries) lease.Snapshot {
	s := lease.Snapshot{
		ClusterID: v.cluster,
		Revision:  max(v.configSeen, v.recordsSeen),
		Config:    slices.Clone(v.config),
		Records:   make([]*lease.Record, 0, len(v.entries)),
	}
	for _, e := range v.entries {
		if e.bad != nil {
			s.Bad = append(s.Bad, *e.bad)
			continue
		}
		if at := x.get(e.lease); !at.Equal(e.record.Expires) {
			r := *e.record // others have it
			r.Expires = at
			e.record = &r
		}
		s.Records = append(s.Records, e.record)
	}
	return s
}

// leases returns the lease of every record that has one.
func (v *view) leases() map[clientv3.LeaseID]struct{} {
	ids := make(map[clientv3.LeaseID]struct{}, len(v.entries))
	for _, e := range v.entries {
		if e.lease != clientv3.NoLease {
			ids[e.lease] = struct{}{}
		}
	}
	return ids
}
