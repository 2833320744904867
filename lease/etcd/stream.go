package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// errStale says that a watch cannot go on from where we were: etcd compacted past
// it, or is not the etcd that it was. A list is needed.
var errStale = errors.New("the watch cannot be resumed")

// stream is one gRPC stream with two watches on it, config and records. They are
// two because a role may well allow no more than flannel reads: <prefix>/config and
// the range of <prefix>/subnets.
type stream struct {
	rpc    pb.Watch_WatchClient
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// C delivers what arrives, in order. It is closed after an error, which err then holds.
	C   chan *pb.WatchResponse
	err error
	// dirty says that events arrived, and were applied, while the watches started.
	dirty bool
}

// openStream starts both watches where v has seen everything and waits until
// etcd has confirmed them. The caller closes the stream.
func (s *Store) openStream(ctx context.Context, c *clientv3.Client, v *view) (*stream, error) {
	// Without a leader, a member would say nothing and look healthy.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	late := time.AfterFunc(s.config().RequestTimeout, cancel)
	st := &stream{cancel: cancel, C: make(chan *pb.WatchResponse)}
	err := s.start(ctx, st, c, v)
	if err == nil && !late.Stop() {
		err = fmt.Errorf("no answer within %s", s.config().RequestTimeout)
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s: %w", v.keys.prefix, err)
	}
	st.wg.Go(func() { st.receive(ctx) })
	return st, nil
}

func (s *Store) start(ctx context.Context, st *stream, c *clientv3.Client, v *view) (err error) {
	st.rpc, err = pb.NewWatchClient(c.ActiveConnection()).Watch(ctx, grpc.MaxCallRecvMsgSize(maxMessage))
	if err != nil {
		return err
	}
	for _, req := range []*pb.WatchCreateRequest{
		{Key: []byte(v.keys.config), StartRevision: v.from(v.configSeen), Fragment: true},
		{
			Fragment:      true, // a burst of records comes in pieces
			Key:           []byte(v.keys.subnets),
			RangeEnd:      []byte(clientv3.GetPrefixRangeEnd(v.keys.subnets)),
			StartRevision: v.from(v.recordsSeen),
		},
	} {
		if err := st.create(req, v); err != nil {
			return err
		}
		s.answered()
	}
	return nil
}

// create starts one watch. Events of an earlier one may arrive before the answer;
// they are applied at once.
func (st *stream) create(req *pb.WatchCreateRequest, v *view) error {
	if err := st.rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}}); err != nil {
		return err
	}
	for {
		resp, err := st.rpc.Recv()
		if tooLarge(err) {
			return fmt.Errorf("%w: %w", errStale, err)
		}
		if err != nil {
			return err
		}
		if err := fault(resp, v.cluster); err != nil {
			return err
		}
		st.dirty = v.applyAll(resp) || st.dirty
		if resp.Created {
			return nil
		}
	}
}

// fault returns what a response says is wrong.
func fault(resp *pb.WatchResponse, cluster string) error {
	switch {
	case resp.CompactRevision != 0:
		return fmt.Errorf("%w: compacted up to revision %d", errStale, resp.CompactRevision)
	case resp.Canceled:
		return fmt.Errorf("etcd cancelled it: %s", resp.CancelReason)
	case resp.Header != nil && clusterID(resp.Header.ClusterId) != cluster:
		return fmt.Errorf("%w: cluster %s became %s", errStale, cluster, clusterID(resp.Header.ClusterId))
	}
	return nil
}

func (st *stream) receive(ctx context.Context) {
	defer close(st.C)
	for {
		resp, err := st.rpc.Recv()
		if err != nil {
			st.err = err
			return
		}
		select {
		case st.C <- resp:
		case <-ctx.Done():
			st.err = context.Cause(ctx)
			return
		}
	}
}

// ping asks for an answer of any kind. Its revision is not used to resume from:
// etcd before 3.4.25 and 3.5.8 could answer ahead of events still to come.
func (st *stream) ping() error {
	return st.rpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

func (st *stream) close() {
	st.cancel()
	st.wg.Wait()
}
