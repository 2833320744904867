package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/lease/keeper"
	"weft/test/await"
)

// slowStore is an etcd that does what it is asked, at revision 9. Its answers to some questions never come.
type slowStore struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	silentWrites, silentLeases bool
	hanging, hungUp            atomic.Int32 // questions without an answer that still wait, and that do not
}

const slowLease, slowRevision = 7, 9

func (s *slowStore) hang(ctx context.Context) error {
	s.hanging.Add(1)
	<-ctx.Done()
	s.hanging.Add(-1)
	s.hungUp.Add(1)
	return ctx.Err()
}

func (s *slowStore) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: new(pb.ResponseHeader), ID: slowLease, TTL: 86400}, nil
}

func (s *slowStore) LeaseTimeToLive(ctx context.Context, _ *pb.LeaseTimeToLiveRequest) (
	*pb.LeaseTimeToLiveResponse, error) {
	if s.silentLeases {
		return nil, s.hang(ctx)
	}
	return &pb.LeaseTimeToLiveResponse{Header: new(pb.ResponseHeader), TTL: -1}, nil
}

func (s *slowStore) Txn(ctx context.Context, _ *pb.TxnRequest) (*pb.TxnResponse, error) {
	if s.silentWrites {
		return nil, s.hang(ctx)
	}
	before := &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{
		ResponsePut: &pb.PutResponse{PrevKv: &mvccpb.KeyValue{Lease: slowLease - 1}}}}
	return &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: slowRevision}, Succeeded: true,
		Responses: []*pb.ResponseOp{before}}, nil
}

func (s *slowStore) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: new(pb.ResponseHeader),
		Kvs: []*mvccpb.KeyValue{{Lease: slowLease, ModRevision: slowRevision}}}, nil
}

func (s *slowStore) start(t *testing.T) *etcd.Store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	pb.RegisterKVServer(srv, s)
	pb.RegisterLeaseServer(srv, s)
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(srv.Stop)
	return newStore(t, "http://"+l.Addr().String())
}

// A write does not wait until the lease of what it replaced is revoked. Closing the store does, for a while.
func TestWriteDoesNotWaitForRevocation(t *testing.T) {
	t.Parallel()
	slow := &slowStore{silentLeases: true}
	s := slow.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	for i := range 2 {
		if rev, err := s.Put(ctx, subnet(1), attrs(1), lease.TTL, int64(i)); err != nil || rev != slowRevision {
			t.Fatal(rev, err)
		}
	}
	if n := slow.hungUp.Load(); n != 0 {
		t.Errorf("two writes waited for %d answers that did not come", n)
	}
	await.True(t, "both are asked for", func() bool { return slow.hanging.Load()+slow.hungUp.Load() == 2 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await.True(t, "nobody asks any more", func() bool { return slow.hungUp.Load() == 2 })
}

// Of the time for a write, which its lost answer uses up, some is left to see that the write was done.
func TestLostAnswerLeavesTimeToLook(t *testing.T) {
	t.Parallel()
	s := (&slowStore{silentWrites: true}).start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	if rev, err := s.Put(ctx, subnet(1), attrs(1), lease.TTL, 0); err != nil || rev != slowRevision {
		t.Errorf("at %d: %v", rev, err)
	}
}

// A node that restarts beside a real etcd whose answers take three seconds confirms its lease, and says that
// the store is slow, never that it is lost.
func TestRestartAtSlowStore(t *testing.T) {
	t.Parallel()
	const delay, network = 3 * time.Second, `{"Network":"10.5.0.0/16"}`
	srv := etcdtest.Start(t)
	rawPut(t, srv, "/coreos.com/network/config", network)
	proxy := newSlowProxy(t, strings.TrimPrefix(srv.Endpoint(), "http://"), delay)
	s, err := etcd.New(etcd.Config{Endpoints: []string{"http://" + proxy.addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	config, err := lease.ParseNetworkConfig([]byte(network))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // read once the keeper has ended
	own := lease.Record{Subnets: subnet(1), Attrs: attrs(1), Expires: time.Now().Add(lease.TTL)}
	own.Weft = &lease.Weft{Node: "a"}
	k, err := keeper.New(s, keeper.Options{Node: "a", Config: config, Local: keeper.Local{Attrs: attrs(1)},
		Cached: &belief.Cached{Own: own}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	st := k.Status()
	if st.State != lease.Unconfirmed {
		t.Errorf("at first it is %s", st.State)
	}
	await.Within(t, await.Timers, "it holds its subnet, and the store is slow", func() error {
		if st = k.Status(); st.State != lease.Held || st.StoreTook < delay {
			return fmt.Errorf("%s, %v; the store answers after %s, %v", st.State, st.Err, st.StoreTook, st.StoreErr)
		}
		return nil
	})
	await.Within(t, await.Timers, "a further answer, to another ping", func() error {
		if now := k.Status(); !now.StoreSeen.After(st.StoreSeen) {
			return fmt.Errorf("last heard %s ago, %v", time.Since(now.StoreSeen), now.StoreErr)
		}
		return nil
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if strings.Contains(log.String(), string(lease.EventStoreLost)) {
		t.Errorf("a slow store is lost:\n%s", &log)
	}
	if st.Own.Subnets != subnet(1) {
		t.Errorf("it has %s", st.Own.Subnets)
	}
}
