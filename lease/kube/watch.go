package kube

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// pageSize is how many Nodes one page of a list has, on an API server that does not stream lists.
	pageSize = 500
	// relistLeast and relistPerNode are how long a watch is trusted before everything is read
	// again, which heals whatever it missed. It grows with the cluster, so that the API server
	// sends no more than some KB/s for each of its nodes.
	relistLeast   = 10 * time.Minute
	relistPerNode = 4 * time.Second
	// backoffFirst and backoffMost bound the wait after a failed list or watch; up to as much again
	// is added at random. It stays short, so that what has changed is known soon after an outage.
	backoffFirst = 500 * time.Millisecond
	backoffMost  = time.Second
	// backoffPerNode is how much longer, at random, a node waits for each Node that it knows: all of
	// them come back at once, and each wants everything.
	backoffPerNode = time.Millisecond
)

// nodeWatch keeps a nodes up to date, and says whether the API server answers.
type nodeWatch struct {
	client *Client
	nodes  *table
	only   string // the one Node to watch; "" for all
	// silent is told why the API server does not serve the watch, and nil once it does.
	silent func(error)

	calls sync.RWMutex // held for reading by list: the reflector does not wait for it

	mu     sync.Mutex // protects relist
	relist func()     // reads everything again; nil before the first time
}

// run lists and watches until ctx ends.
func (f *nodeWatch) run(ctx context.Context) {
	// The library's log says nothing that the errors do not.
	ctx = klog.NewContext(ctx, klog.Logger{})
	defer func() { // when ctx has ended, which ends the calls too
		f.calls.Lock()
		defer f.calls.Unlock()
	}()
	for ctx.Err() == nil {
		round, cancel := context.WithTimeout(ctx, relistAfter(f.nodes.count()))
		r := cache.NewReflectorWithOptions(f.listWatch(), &corev1.Node{}, f.nodes, cache.ReflectorOptions{
			Name: "nodes", Logger: new(klog.Logger),
			Backoff: &wait.Backoff{Duration: backoffFirst, Cap: backoffMost, Factor: 2, Jitter: 1, Steps: 10},
		})
		r.WatchListPageSize = pageSize
		f.mu.Lock()
		f.relist = cancel
		f.mu.Unlock()
		r.RunWithContext(round)
		cancel()
	}
}

// relistAfter is when to read everything again, in a cluster of so many nodes.
func relistAfter(count int) time.Duration {
	d := max(relistLeast, time.Duration(count)*relistPerNode)
	return d + rand.N(d/2)
}

// continues reports whether a watch that goes on from a version hears the store that the version is of, as
// far as our Node and how far the API server counts tell. After a restore from a backup, or a wipe, that
// counts from further back, and a watch hears nothing until it has caught up: everything has to be read
// again.
func (f *nodeWatch) continues(ctx context.Context) bool {
	known, at := f.nodes.ourNode(), f.nodes.at()
	l, err := f.client.list(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, f.nodes.own).String()})
	if err != nil {
		return true // nobody knows
	}
	var now *corev1.Node
	if len(l.Items) == 1 {
		now = f.nodes.trim(&l.Items[0])
	}
	return !contradicts(known, now, at, version(l.ResourceVersion))
}

// Continues reports whether a watch that resumes from the known version hears the store that own and version
// come from, as far as our Node tells. own is our Node now, nil if it is gone, and version the store's. If
// not, everything has to be read again.
func (c *Life) Continues(own *Object, version int64) bool {
	if c.table == nil {
		return true
	}
	if own != nil {
		own = c.table.trim(own)
	}
	return !contradicts(c.table.ourNode(), own, c.table.at(), version)
}

// again has everything read again.
func (f *nodeWatch) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relist()
}

// contradicts reports whether our Node as it is known, nil if it is not there, cannot have become what a
// later read met, or the API server cannot have come from at, how far the watch has come, to the version to,
// which is 0 if it says none. The watch has told us every version of our Node by then: another version of it
// from before at is of a server that went back, and has come as far again by what others wrote.
func contradicts(known, now *corev1.Node, at, to int64) bool {
	switch {
	case to != 0 && to < at:
		return true
	case now == nil:
		return known != nil
	case known == nil:
		return version(now.ResourceVersion) <= at
	}
	was, is := version(known.ResourceVersion), version(now.ResourceVersion)
	// written at a version that was used before
	other := is == was && !(maps.Equal(now.Annotations, known.Annotations) &&
		slices.Equal(cidrsOf(now), cidrsOf(known)))
	return now.UID != known.UID || is < was || is != was && is <= at || other
}

// signOfLife asks the API server for one, and returns an error if there is none in time. A refusal is one.
func (f *nodeWatch) signOfLife(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := f.client.getNode(ctx, f.nodes.own, "0")
	var none *noNodeError
	if errors.As(err, &none) || apierrors.ReasonForError(err) == metav1.StatusReasonForbidden {
		return nil
	}
	return err
}

func (f *nodeWatch) listWatch() *cache.ListWatch {
	return &cache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}
}

// list reads one page, from an API server that does not stream. It asks for the newest: in pages,
// because what the API server has at hand it sends all at once.
func (f *nodeWatch) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	f.calls.RLock()
	defer f.calls.RUnlock()
	f.choose(&o)
	o.ResourceVersion, o.ResourceVersionMatch = "", ""
	if o.Limit == 0 {
		o.Limit = pageSize
	}
	l, err := f.client.list(ctx, o)
	if err != nil {
		f.fail(ctx, "list", err)
		return nil, err
	}
	f.nodes.heard()
	for i := range l.Items {
		l.Items[i] = *f.nodes.trim(&l.Items[i])
	}
	return l, nil
}

// watch opens a watch, or a list that is streamed and goes on as a watch.
func (f *nodeWatch) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	f.choose(&o)
	streamed := o.SendInitialEvents != nil && *o.SendInitialEvents
	w, err := f.client.watch(ctx, o)
	switch {
	case err == nil:
		f.nodes.heard()
		f.silent(nil)
		if !streamed && !f.continues(ctx) {
			w.Stop()
			f.again()
			return nil, errors.New("the API server went back")
		}
		return w, nil
	case streamed && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
		return nil, err // an API server that does not stream lists: list is next
	}
	f.fail(ctx, "watch", err)
	if streamed && (utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)) {
		// The reflector would wait here without asking whether ctx has ended; any other error it
		// takes to its back-off.
		return nil, errors.New(err.Error())
	}
	return nil, err
}

// choose narrows the watch to the one Node that is wanted.
func (f *nodeWatch) choose(o *metav1.ListOptions) {
	if f.only != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, f.only).String()
	}
}

// fail notes an error that means that nothing is heard, and waits: the longer, the larger the cluster
// is, but not after ctx has ended. An outdated version means no such thing, since the reflector then reads
// everything again.
func (f *nodeWatch) fail(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return
	}
	f.silent(f.client.explain(access{verb, "nodes", ""}, err))
	sleep(ctx, rand.N(time.Duration(f.nodes.count())*backoffPerNode+1))
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
