package etcd

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	// pieces has what is missing of an answer that came in pieces, by watch.
	pieces  map[int64]bool
	config  []byte
	entries map[string]entry
	recv    []string // the last record's
}

func newView(k keys) *view { return &view{keys: k} }

// reset replaces everything by a list that was read at revision.
func (v *view) reset(cluster string, revision int64, kvs []*mvccpb.KeyValue) {
	v.cluster, v.listed = cluster, revision
	v.configSeen, v.recordsSeen = revision, revision
	v.config, v.entries, v.pieces = nil, make(map[string]entry, len(kvs)), nil
	for _, kv := range kvs {
		v.put(kv)
	}
}

// applyAll takes over an answer, and reports whether anything may have changed. Of one that comes in
// pieces the last may never come: until then the watch cannot be resumed, since events of one
// revision may be on either side.
func (v *view) applyAll(resp *pb.WatchResponse) (dirty bool) {
	for _, e := range resp.Events {
		dirty = v.apply(e) || dirty
	}
	if resp.Fragment {
		if v.pieces == nil {
			v.pieces = map[int64]bool{}
		}
		v.pieces[resp.WatchId] = true
	} else {
		delete(v.pieces, resp.WatchId)
	}
	return dirty
}

// partial reports whether an answer is there of which the last piece is not.
func (v *view) partial() bool { return len(v.pieces) > 0 }

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
		if w := e.record.Weft; w != nil && slices.Equal(w.Recv, v.recv) {
			w.Recv = v.recv // nearly all nodes say the same
		} else if w != nil {
			v.recv = w.Recv
		}
		v.entries[entryName(key)] = e
	}
}

// putHuge takes over a record without its value, which is too large to be received.
func (v *view) putHuge(kv *mvccpb.KeyValue) { v.entries[entryName(string(kv.Key))] = v.keys.huge(kv) }

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
	} else {
		delete(v.entries, entryName(key))
	}
}

// snapshot returns a copy that the receiver may keep.
func (v *view) snapshot(x *expiries) lease.Snapshot {
	s := lease.Snapshot{
		ClusterID: v.cluster,
		Revision:  max(v.configSeen, v.recordsSeen),
		Config:    slices.Clone(v.config),
		Records:   make([]lease.Record, 0, len(v.entries)),
	}
	names := slices.AppendSeq(make([]string, 0, len(v.entries)), maps.Keys(v.entries))
	slices.Sort(names)
	for _, key := range names {
		e := v.entries[key]
		if e.bad != nil {
			s.Bad = append(s.Bad, *e.bad)
			continue
		}
		e.record.Expires = x.get(e.lease)
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
