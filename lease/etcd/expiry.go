package etcd

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"
)

// expiries remembers when etcd leases end. Nobody renews one, since each write of a record brings a
// new lease; but an etcd that starts, or whose leader changes, gives all of them their whole time
// anew. The zero value is ready.
type expiries struct {
	mu  sync.Mutex
	at  map[clientv3.LeaseID]expiry
	own clientv3.LeaseID // that of our last write
}

// expiry is when a lease ends. In doubt, it may be later.
type expiry struct {
	at    time.Time
	doubt bool
}

// get returns the zero time for a lease that is not known.
func (x *expiries) get(id clientv3.LeaseID) time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at[id].at
}

func (x *expiries) set(id clientv3.LeaseID, at time.Time) {
	if id == clientv3.NoLease {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.at == nil {
		x.at = map[clientv3.LeaseID]expiry{}
	}
	x.at[id] = expiry{at: at}
}

// written is set for the lease of our own record.
func (x *expiries) written(id clientv3.LeaseID, at time.Time) {
	x.set(id, at)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.own = id
}

// doubt has every lease asked about again.
func (x *expiries) doubt() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, e := range x.at {
		e.doubt = true
		x.at[id] = e
	}
}

// missing forgets every lease that is not in ids and returns those of ids that are
// not known, and our own if it is in doubt; and then the others in doubt.
func (x *expiries) missing(ids map[clientv3.LeaseID]struct{}) (w wish) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.at, func(id clientv3.LeaseID, _ expiry) bool { _, ok := ids[id]; return !ok })
	for id := range ids {
		switch e, known := x.at[id]; {
		case !known || e.doubt && id == x.own:
			w.first = append(w.first, id)
		case e.doubt:
			w.again = append(w.again, id)
		}
	}
	slices.Sort(w.first)
	slices.Sort(w.again)
	return w
}

// wish is what is to be learnt: first what is not known, and slowly what is in doubt.
type wish struct{ first, again []clientv3.LeaseID }

// learner asks etcd for expiries beside a watch, slowly enough that a whole cluster
// which starts at once with thousands of records does not drown its store.
type learner struct {
	store  *Store
	want   chan wish     // holds the newest only
	learnt chan struct{} // one signal when a wish has been worked off
}

const (
	learnWorkers = 4
	learnRate    = 200 // a second
	// againAll is the same for all nodes of a cluster together, each with one record, for what is in doubt.
	againAll = 20_000
)

func newLearner(s *Store) *learner {
	return &learner{store: s, want: make(chan wish, 1), learnt: make(chan struct{}, 1)}
}

// wish replaces what is to be learnt. It does not block.
func (l *learner) wish(w wish) {
	select {
	case <-l.want:
	default:
	}
	l.want <- w // only the watch's goroutine sends, so there is room
}

// run works until ctx ends.
func (l *learner) run(ctx context.Context) {
	limit := rate.NewLimiter(learnRate, learnWorkers)
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-l.want:
			slow := rate.NewLimiter(rate.Limit(min(learnRate, againAll/float64(len(w.again)+1))), learnWorkers)
			known := l.learn(ctx, limit, w.first)
			if l.learn(ctx, slow, w.again) || known {
				select {
				case l.learnt <- struct{}{}:
				default:
				}
			}
		}
	}
}

// learn asks about each of ids until one answer fails or a newer wish arrives: what
// is left then is in the next wish. It reports whether anything was learnt.
func (l *learner) learn(ctx context.Context, limit *rate.Limiter, ids []clientv3.LeaseID) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := make(chan clientv3.LeaseID)
	var wg sync.WaitGroup
	for range min(learnWorkers, len(ids)) {
		wg.Go(func() {
			for id := range work {
				if l.ask(ctx, id) != nil {
					cancel()
				}
			}
		})
	}
	sent := 0
	for _, id := range ids {
		if limit.Wait(ctx) != nil || len(l.want) > 0 {
			break
		}
		work <- id
		sent++
	}
	close(work)
	wg.Wait()
	return sent > 0
}

func (l *learner) ask(ctx context.Context, id clientv3.LeaseID) error {
	return l.store.request(ctx, func(ctx context.Context, c *clientv3.Client) error {
		left, err := timeToLive(ctx, c, int64(id))
		if err == nil {
			l.store.expiries.set(id, time.Now().Add(left))
		}
		return err
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
