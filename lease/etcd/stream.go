package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// errStale says that a watch cannot go on from where we were: etcd compacted past
// it, or is not the etcd that it was. A list is needed.
var errStale = errors.New("the watch cannot be resumed")

// stream is two watches, of config and of records: a role may well allow no more than flannel reads, which is
// <prefix>/config and the range of <prefix>/subnets.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	client *clientv3.Client
	wg     sync.WaitGroup
	// C delivers the responses, of each watch in order. broken is closed when the connection ends, or a watch:
	// the library would connect again by itself, to an etcd that may be another one by then.
	C      chan clientv3.WatchResponse
	broken chan struct{}
	end    func() // closes broken
}

// openStream starts both watches where v has seen everything and waits until
// etcd has confirmed them. The caller closes the stream.
func (s *Store) openStream(ctx context.Context, c *clientv3.Client, v *view) (*stream, error) {
	// Without a leader, a member would say nothing and look healthy.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	// The library has one stream for all watches of the same metadata, and etcd answers a ping only if every
	// watch of a stream is where the store is. That of the mail is ahead, and so needs another stream.
	ctx = metadata.AppendToOutgoingContext(ctx, "weft-watch", "records")
	st := &stream{ctx: ctx, cancel: cancel, client: c}
	st.C, st.broken = make(chan clientv3.WatchResponse), make(chan struct{})
	st.end = sync.OnceFunc(func() { close(st.broken) })
	st.wg.Go(st.guard)
	late := time.AfterFunc(s.config().RequestTimeout, cancel)
	config := c.Watch(ctx, v.keys.config, clientv3.WithRev(v.from(v.configSeen)))
	s.answered(s.Heard().Took)
	records := c.Watch(ctx, v.keys.subnets, clientv3.WithRange(clientv3.GetPrefixRangeEnd(v.keys.subnets)),
		clientv3.WithRev(v.from(v.recordsSeen)), clientv3.WithFragment()) // a burst of records comes in pieces
	if !late.Stop() {
		st.close()
		return nil, fmt.Errorf("watch %s: no answer within %s", v.keys.prefix, s.config().RequestTimeout)
	}
	s.answered(s.Heard().Took)
	for _, from := range []clientv3.WatchChan{config, records} {
		st.wg.Go(func() { st.forward(from) })
	}
	return st, nil
}

// forward hands on the responses of one watch, until it or ctx ends.
func (st *stream) forward(from clientv3.WatchChan) {
	for {
		select {
		case resp, ok := <-from:
			if !ok {
				st.end()
				return
			}
			select {
			case st.C <- resp:
			case <-st.ctx.Done():
				return
			}
		case <-st.ctx.Done():
			return
		}
	}
}

// guard waits until the connection ends.
func (st *stream) guard() {
	conn := st.client.ActiveConnection()
	if conn.GetState() != connectivity.Ready || conn.WaitForStateChange(st.ctx, connectivity.Ready) {
		st.end()
	}
}

// errBroken is the error of a connection that has ended, in gRPC's words, which sentence knows.
func errBroken() error { return status.Error(codes.Unavailable, "error reading from server") }

// fault returns what a response says is wrong.
func fault(resp clientv3.WatchResponse, cluster string) error {
	err := resp.Err()
	switch {
	case resp.CompactRevision != 0:
		return fmt.Errorf("%w: compacted up to revision %d", errStale, resp.CompactRevision)
	case tooLarge(err):
		return fmt.Errorf("%w: %w", errStale, err)
	case err != nil:
		return fmt.Errorf("etcd cancelled it: %w", err)
	case clusterID(resp.Header.ClusterId) != cluster:
		return fmt.Errorf("%w: cluster %s became %s", errStale, cluster, clusterID(resp.Header.ClusterId))
	}
	return nil
}

// ping asks for an answer of any kind. Its revision is not used to resume from:
// etcd before 3.4.25 and 3.5.8 could answer ahead of events still to come.
func (st *stream) ping() {
	// It waits for a connection if need be; whoever asked notices the silence.
	st.wg.Go(func() { _ = st.client.RequestProgress(st.ctx) })
}

func (st *stream) close() {
	st.cancel()
	st.wg.Wait()
}
