package etcd

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
)

// expiries remembers when etcd leases end, of those whose record was written while we looked: nobody renews a
// lease, since each write of a record brings a new one. But an etcd that starts, or whose leader changes,
// gives all of them their whole time anew. The zero value is ready.
type expiries struct {
	mu  sync.Mutex
	at  map[clientv3.LeaseID]time.Time
	own clientv3.LeaseID // that of our last write, which is known exactly; of others we assume lease.TTL
}

// get returns the zero time for a lease that is not known.
func (x *expiries) get(id clientv3.LeaseID) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at[id]
}

// seen notes that a record with a lease was written a moment ago.
func (x *expiries) seen(id clientv3.LeaseID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.at[id]; !known {
		x.set(id, time.Now().Add(lease.TTL))
	}
}

// written notes when the lease of our own record ends.
func (x *expiries) written(id clientv3.LeaseID, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.set(id, at)
	x.own = id
}

func (x *expiries) set(id clientv3.LeaseID, at time.Time) {
	if id == clientv3.NoLease {
		return
	}
	if x.at == nil {
		x.at = map[clientv3.LeaseID]time.Time{}
	}
	x.at[id] = at
}

// forget drops what is known of others' leases: etcd may have been restarted.
func (x *expiries) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.at, func(id clientv3.LeaseID, _ time.Time) bool { return id != x.own })
}

// keep drops every lease that is not in ids, but for ours.
func (x *expiries) keep(ids map[clientv3.LeaseID]struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.at, func(id clientv3.LeaseID, _ time.Time) bool {
		_, there := ids[id]
		return !there && id != x.own
	})
}

// timeToLive returns what is left of a lease, zero if it has ended.
func timeToLive(ctx context.Context, c *clientv3.Client, id int64) (time.Duration, error) {
	resp, err := c.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		return 0, err
	}
	return time.Duration(max(resp.TTL, 0)) * time.Second, nil
}
