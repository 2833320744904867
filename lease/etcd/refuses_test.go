package etcd_test

import (
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// TestReadOnly: an etcd whose quota is used up takes no write and says why, is read and watched as ever, and
// takes writes again once the alarm is gone.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	_, _, lost := w.snapshot()
	c := srv.Client()
	alarm := func(do pb.AlarmRequest_AlarmAction) {
		t.Helper()
		// Member 0 is all of them.
		if _, err := pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(t.Context(),
			&pb.AlarmRequest{Action: do, Alarm: pb.AlarmType_NOSPACE}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE)
	if err := s.CreateConfig(t.Context(), []byte(`{"Network":"10.5.0.0/16"}`)); !errors.Is(err,
		rpctypes.ErrNoSpace) {
		t.Errorf("a write while there is no space: %v", err)
	}
	if _, err := s.Put(t.Context(), subnet(2), attrs(2), lease.TTL, 0); !errors.Is(err, lease.ErrRefused) ||
		!errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a record while there is no space: %v", err)
	}
	if snap, err := s.Snapshot(t.Context()); err != nil || len(snap.Records) != 1 {
		t.Errorf("a read while there is no space: %v %+v", err, snap)
	}
	alarm(pb.AlarmRequest_DEACTIVATE)
	put(t, s, 2, lease.TTL, 0)
	w.records(t, 1, 2)
	if _, _, now := w.snapshot(); now != lost {
		t.Errorf("the watch was lost %d times", now-lost)
	}
}

// TestRevokedRights: a role that loses the right to write is refused, with etcd's reason, and what it may
// still read is read. Once it has the right again the same store writes.
func TestRevokedRights(t *testing.T) {
	t.Parallel()
	srv, ctx := etcdtest.Start(t), t.Context()
	logins(t, srv)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	login := func(user, password string) func(*etcd.Config) {
		return func(c *etcd.Config) { c.Username, c.Password = user, etcd.NewSecret(password) }
	}
	s := newStore(t, srv.Endpoint(), login("node", "nodepw"))
	put(t, s, 1, lease.TTL, 0)
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.Endpoint()}, Username: "root",
		Password: "rootpw", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	must(admin.RoleRevokePermission(ctx, "node", rolePrefix+"/subnets", rolePrefix+"/subnett"))
	must(admin.RoleGrantPermission(ctx, "node", rolePrefix+"/subnets", rolePrefix+"/subnett", 0))
	if _, err := s.Put(ctx, subnet(2), attrs(2), lease.TTL, 0); !errors.Is(err, lease.ErrRefused) ||
		!errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a write without the right: %v", err)
	}
	if snap, err := s.Snapshot(ctx); err != nil || len(snap.Records) != 1 {
		t.Errorf("a read with the right: %v %+v", err, snap)
	}
	must(admin.RoleRevokePermission(ctx, "node", rolePrefix+"/subnets", rolePrefix+"/subnett"))
	await.OK(t, "a read without the right is refused", func() error {
		if _, err := s.Snapshot(ctx); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			return errors.Join(errors.New("it is not"), err)
		}
		return nil
	})
	must(admin.RoleGrantPermission(ctx, "node", rolePrefix+"/subnets", rolePrefix+"/subnett", 2))
	put(t, s, 2, lease.TTL, 0)
}
