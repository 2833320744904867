package etcd

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"weft/lease"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// TestLostAnswer replays what is left behind when a write's answer does not arrive.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s, err := New(Config{Endpoints: []string{srv.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	c, ctx := srv.Client(), t.Context()
	grant := func() clientv3.LeaseID {
		t.Helper()
		id, err := s.grant(ctx, lease.TTL)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	alive := func(id clientv3.LeaseID) bool {
		t.Helper()
		left, err := timeToLive(ctx, c, int64(id))
		if err != nil {
			t.Fatal(err)
		}
		return left > 0
	}
	const key = "/coreos.com/network/subnets/10.5.1.0-24"
	gone := status.Error(codes.Unavailable, "connection reset")

	done := grant()
	resp, err := c.Put(ctx, key, "{}", clientv3.WithLease(done))
	if err != nil {
		t.Fatal(err)
	}
	if rev, ok := s.settle(ctx, key, done, gone); !ok || rev != resp.Header.Revision || !alive(done) {
		t.Errorf("the write was done at %d, but settle says %d, %v", resp.Header.Revision, rev, ok)
	}
	undone := grant()
	if _, ok := s.settle(ctx, key, undone, gone); ok || !alive(undone) {
		t.Error("the write may still be done, so its lease has to stay")
	}
	for _, refusal := range []error{lease.ErrConflict, status.Error(codes.PermissionDenied, "no")} {
		refused := grant()
		if _, ok := s.settle(ctx, key, refused, refusal); ok {
			t.Errorf("%v: the write was done", refusal)
		}
		await.True(t, "the end of the lease of a refused write", func() bool { return !alive(refused) })
	}
}

func TestViewTakesEventsOnce(t *testing.T) {
	t.Parallel()
	v := newView(newKeys("/p"))
	kv := func(key, value string, rev int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte(value), ModRevision: rev, CreateRevision: 2}
	}
	const a, b = "/p/subnets/10.1.1.0-24", "/p/subnets/10.1.2.0-24"
	const value = `{"PublicIP":"1.2.3.4","PublicIPv6":null}`
	v.reset("c", 10, []*mvccpb.KeyValue{kv("/p/config", "one", 3), kv(a, value, 4)})
	steps := []struct {
		name            string
		kind            mvccpb.Event_EventType
		kv              *mvccpb.KeyValue
		applied         bool
		config          string
		records         int
		configSeen, rev int64
	}{
		{"older than the list", mvccpb.DELETE, kv(a, "", 10), false, "one", 1, 10, 10},
		{"new record", mvccpb.PUT, kv(b, value, 12), true, "one", 2, 10, 12},
		{"config, later on its own watch", mvccpb.PUT, kv("/p/config", "two", 11), true, "two", 2, 11, 12},
		{"another key", mvccpb.PUT, kv("/p/other", "", 13), false, "two", 2, 11, 12},
		{"removal", mvccpb.DELETE, kv(a, "", 14), true, "two", 1, 11, 14},
		{"config gone", mvccpb.DELETE, kv("/p/config", "", 15), true, "", 1, 15, 15},
	}
	for _, s := range steps {
		if got := v.apply(&mvccpb.Event{Type: s.kind, Kv: s.kv}); got != s.applied {
			t.Errorf("%s: applied %v", s.name, got)
		}
		snap := v.snapshot(new(expiries))
		if string(snap.Config) != s.config || len(snap.Records) != s.records || snap.Revision != s.rev ||
			v.configSeen != s.configSeen {
			t.Errorf("%s: %+v, config seen to %d", s.name, snap, v.configSeen)
		}
		for _, r := range snap.Records {
			if r.Created != 2 || r.Revision == 2 {
				t.Errorf("%s: %s was made at %d, and changed at %d", s.name, r.Key(), r.Created, r.Revision)
			}
		}
	}
}
