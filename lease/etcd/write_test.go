package etcd_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

func count(errs []error) (won, lost int) {
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case errors.Is(err, lease.ErrConflict):
			lost++
		}
	}
	return won, lost
}

func TestCompareAndSwap(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	conflict := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, lease.ErrConflict) {
			t.Errorf("%s: %v, want a conflict", what, err)
		}
	}
	rev := put(t, s, 1, lease.TTL, 0)
	_, err := s.Put(t.Context(), subnet(1), attrs(2), lease.TTL, 0)
	conflict("create over a record", err)
	_, err = s.Put(t.Context(), subnet(2), attrs(2), lease.TTL, rev)
	conflict("update of nothing", err)
	next := put(t, s, 1, lease.TTL, rev)
	_, err = s.Put(t.Context(), subnet(1), attrs(2), lease.TTL, rev)
	conflict("update of an older revision", err)
	conflict("delete of an older revision", s.Delete(t.Context(), subnet(1), rev))
	conflict("delete of nothing", s.Delete(t.Context(), subnet(2), rev))

	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Records) != 1 || snap.Records[0].Revision != next || !snap.Records[0].Attrs.Equal(attrs(1)) {
		t.Errorf("records %+v, want what was written at %d", snap.Records, next)
	}
	// That of the update; the first one's has nothing bound to it, and those of refused writes neither.
	leases(t, srv, 1)
	if err := s.Delete(t.Context(), subnet(1), next); err != nil {
		t.Error(err)
	}
	leases(t, srv, 0)
	if snap, err = s.Snapshot(t.Context()); err != nil || len(snap.Records) != 0 {
		t.Errorf("after delete: %v, %v", snap.Records, err)
	}
}

// A record that gets another key does so at one revision, the old one going first.
func TestReplace(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	rev := put(t, s, 1, lease.TTL, 0)
	both := lease.Subnets{V4: subnet(1).V4, V6: netip.MustParsePrefix("fd00:10:0:1::/64")}
	if _, err := s.Replace(t.Context(), subnet(1), rev-1, both, attrs(1), lease.TTL); !errors.Is(err,
		lease.ErrConflict) {
		t.Errorf("another revision of the old one: %v, want a conflict", err)
	}
	put(t, s, 2, lease.TTL, 0)
	if _, err := s.Replace(t.Context(), subnet(1), rev, subnet(2), attrs(1), lease.TTL); !errors.Is(err,
		lease.ErrConflict) {
		t.Errorf("over a record that is there: %v, want a conflict", err)
	}
	watch := srv.Client().Watch(t.Context(), "/coreos.com/network/subnets/", clientv3.WithPrefix(),
		clientv3.WithRev(rev+2))
	next, err := s.Replace(t.Context(), subnet(1), rev, both, attrs(1), lease.TTL)
	if err != nil {
		t.Fatal(err)
	}
	answer := <-watch
	if len(answer.Events) != 2 || answer.Events[0].Type != clientv3.EventTypeDelete ||
		answer.Events[1].Type != clientv3.EventTypePut ||
		answer.Events[0].Kv.ModRevision != next || answer.Events[1].Kv.ModRevision != next {
		t.Errorf("a watcher gets %v, want a deletion and a put at %d", answer.Events, next)
	}
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Records) != 2 || snap.Records[0].Subnets != both || snap.Records[0].Reservation ||
		snap.Records[1].Subnets != subnet(2) {
		t.Errorf("records %+v", snap.Records)
	}
	leases(t, srv, 2) // of the other, and of the new; not of the old, nor of what was refused
}

// A lease to which somebody bound another key is not ours to revoke: the key would go with it.
func TestLeaseInUseIsKept(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	rev := put(t, s, 1, lease.TTL, 0)
	c := srv.Client()
	const record, other = "/coreos.com/network/subnets/10.5.1.0-24", "/coreos.com/network/weft/other"
	resp, err := c.Get(t.Context(), record)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatal(resp, err)
	}
	if _, err := c.Put(t.Context(), other, "x", clientv3.WithLease(clientv3.LeaseID(resp.Kvs[0].Lease))); err != nil {
		t.Fatal(err)
	}
	for range 3 { // as by restarts
		rev = put(t, s, 1, lease.TTL, rev)
	}
	leases(t, srv, 2) // the record's, and the one that another key is bound to
	if resp, err = c.Get(t.Context(), other); err != nil || len(resp.Kvs) != 1 {
		t.Errorf("the other key is gone: %v", err)
	}
}

func TestReservationStaysOne(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	rev := put(t, s, 1, 0, 0)
	put(t, s, 1, 0, rev)
	put(t, s, 2, time.Hour, 0)
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := snap.Records[0]; !r.Reservation || !r.Expires.IsZero() {
		t.Errorf("record %+v, want a reservation", r)
	}
	if snap.Records[1].Reservation {
		t.Error("a record with TTL shows as a reservation")
	}
	if left, err := s.Remaining(t.Context(), subnet(1)); left != 0 || err != nil {
		t.Errorf("reservation: %s left, %v", left, err)
	}
	if left, err := s.Remaining(t.Context(), subnet(2)); left < 59*time.Minute || left > time.Hour ||
		err != nil {
		t.Errorf("record of an hour: %s left, %v", left, err)
	}
	if _, err := s.Remaining(t.Context(), subnet(3)); !errors.Is(err, etcd.ErrNotFound) {
		t.Errorf("no record: %v", err)
	}
}

func TestUnparsableKeyIsNeverWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t, "http://127.0.0.1:1") // nothing is asked there
	if _, err := s.Put(t.Context(), lease.Subnets{}, attrs(1), lease.TTL, 0); !errors.Is(err, lease.ErrKey) {
		t.Errorf("no subnet: %v", err)
	}
	if err := s.Delete(t.Context(), lease.Subnets{}, 0); !errors.Is(err, lease.ErrKey) {
		t.Errorf("no subnet: %v", err)
	}
}

func TestConfigIsCreatedOnce(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	snap, err := s.Snapshot(t.Context())
	if err != nil || snap.Config != nil {
		t.Fatalf("config %q, %v in an empty store", snap.Config, err)
	}
	for _, c := range []string{`{"Network":"10.5.0.0/16"}`, `{"Network":"10.6.0.0/16"}`} {
		if err := s.CreateConfig(t.Context(), []byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	if snap, err = s.Snapshot(t.Context()); err != nil || string(snap.Config) != `{"Network":"10.5.0.0/16"}` {
		t.Errorf("config %q, %v: want the first", snap.Config, err)
	}
}

func TestForeignKeysCostOnlyThemselves(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	put(t, s, 1, lease.TTL, 0)
	const dir = "/coreos.com/network/subnets"
	bad := map[string]lease.RejectReason{
		dir + "/10.5.9.0-24":      lease.RejectValue,
		dir + "/10.5.8.0-24":      lease.RejectValue,
		dir + "/10.5.7.0-240":     lease.RejectKey,
		dir + "/deep/10.5.7.0-24": lease.RejectKey,
		dir + "/":                 lease.RejectKey,
		dir:                       lease.RejectKey,
		dir + "-old/10.5.7.0-24":  lease.RejectKey,
		dir + "/\xff\x00":         lease.RejectKey,
	}
	for key := range bad {
		value := `{"PublicIP":"1.2.3.4"}`
		if key == dir+"/10.5.9.0-24" {
			value = `{"PublicIP":`
		}
		if key == dir+"/10.5.8.0-24" {
			value = `{"PublicIP":"1.2.3.4","x":"` + string(make([]byte, 1<<20)) + `"}`
		}
		rawPut(t, srv, key, value)
	}
	rawPut(t, srv, "/coreos.com/network2/subnets/10.5.6.0-24", `{}`)
	rawPut(t, srv, "/coreos.com/network/config.bak", `{}`)
	snap, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Records) != 1 || snap.Records[0].Subnets != subnet(1) || snap.Config != nil {
		t.Errorf("records %v, config %q", snap.Records, snap.Config)
	}
	if len(snap.Bad) != len(bad) {
		t.Errorf("%d bad records, want %d", len(snap.Bad), len(bad))
	}
	for _, b := range snap.Bad {
		want, ok := bad[dir+"/"+b.Key]
		if !ok {
			want = bad[b.Key] // a stray key, beside the directory
		}
		if b.Reason != want || b.Detail == "" || len(b.Detail) > 400 || b.Revision == 0 {
			t.Errorf("%q: %v (%s)", b.Key, b.Reason, b.Detail)
		}
	}
	w := watch(t, s)
	w.records(t, 1)
	rawPut(t, srv, dir+"/garbage", "x")
	await.True(t, "the garbage", func() bool { last, _, _ := w.snapshot(); return len(last.Bad) == len(bad)+1 })
	w.records(t, 1)
	if _, err := srv.Client().Delete(t.Context(), dir+"/garbage"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the garbage's end", func() bool {
		last, _, _ := w.snapshot()
		return len(last.Bad) == len(bad)
	})
	if _, err := srv.Client().Delete(t.Context(), dir+"/10.5", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	w.records(t)
}
