package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// newStore returns a Store on srv that asks for a sign of life often and waits long for any answer: what is
// lost is then lost for a reason, and not because the machine had no time.
func newStore(t testing.TB, endpoint string, change ...func(*etcd.Config)) *etcd.Store {
	t.Helper()
	cfg := etcd.Config{
		Endpoints: []string{endpoint}, RequestTimeout: await.Patience,
		PingEvery: 300 * time.Millisecond, PingTimeout: await.Patience,
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := etcd.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// impatient is for a Store that has to notice that nobody answers.
func impatient(c *etcd.Config) { c.RequestTimeout, c.PingTimeout = 5*time.Second, 2*time.Second }

func subnet(i int) lease.Subnets {
	return lease.Subnets{V4: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(5 + i/256), byte(i), 0}), 24)}
}

func attrs(i int) lease.Attrs {
	return lease.Attrs{PublicIP: netip.AddrFrom4([4]byte{192, 0, byte(i / 256), byte(i)})}
}

func put(t testing.TB, s *etcd.Store, i int, ttl time.Duration, rev int64) int64 {
	t.Helper()
	got, err := s.Put(t.Context(), subnet(i), attrs(i), ttl, rev)
	if err != nil {
		t.Fatalf("put %d: %v", i, err)
	}
	return got
}

func rawPut(t testing.TB, srv *etcdtest.Server, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if _, err := srv.Client().Put(ctx, key, value); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

// watcher records what a Watch reports.
type watcher struct {
	mu      sync.Mutex
	last    lease.Snapshot
	changes int
	losses  []error
	// missing counts how often a key was gone that the snapshot before had.
	missing map[string]int
}

func watch(t testing.TB, s *etcd.Store) *watcher {
	t.Helper()
	w := &watcher{missing: map[string]int{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Watch(ctx, w.changed, w.lost) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Watch returned %v, want the context's error", err)
			}
		case <-time.After(await.Patience):
			t.Error("Watch does not return when its context ends")
		}
	})
	return w
}

func (w *watcher) changed(s lease.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := map[string]bool{}
	for _, r := range s.Records {
		now[r.Key()] = true
	}
	for _, r := range w.last.Records {
		if !now[r.Key()] {
			w.missing[r.Key()]++
		}
	}
	w.last = s
	w.changes++
}

func (w *watcher) lost(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses = append(w.losses, err)
}

func (w *watcher) snapshot() (lease.Snapshot, int, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, w.changes, len(w.losses)
}

// records waits until exactly these are there.
func (w *watcher) records(t testing.TB, want ...int) lease.Snapshot {
	t.Helper()
	var keys []string
	for _, i := range want {
		keys = append(keys, subnet(i).Key()+" ")
	}
	slices.Sort(keys) // as the store orders them
	names := strings.Join(keys, "")
	var last lease.Snapshot
	await.True(t, "records "+names, func() bool {
		got := ""
		last, _, _ = w.snapshot()
		for _, r := range last.Records {
			got += r.Key() + " "
		}
		return got == names
	})
	return last
}

// lostAfter waits for a loss beyond the first n.
func (w *watcher) lostAfter(t testing.TB, n int) {
	t.Helper()
	await.True(t, "a loss", func() bool { _, _, l := w.snapshot(); return l > n })
}

// silentAfter waits for a loss beyond the first n, which is that of an unanswered ping.
func (w *watcher) silentAfter(t testing.TB, n int) {
	t.Helper()
	w.lostAfter(t, n)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.losses[n]; !strings.Contains(err.Error(), "silent") {
		t.Errorf("lost because %v, want the watch's own ping to notice", err)
	}
}

// changedAfter waits for a snapshot beyond the first n.
func (w *watcher) changedAfter(t testing.TB, n int) {
	t.Helper()
	await.True(t, "a snapshot", func() bool { _, c, _ := w.snapshot(); return c > n })
}

// leases waits until etcd has so many: writes do not wait for the end of those that they leave behind.
func leases(t testing.TB, srv *etcdtest.Server, want int) {
	t.Helper()
	await.OK(t, "the etcd leases", func() error {
		resp, err := srv.Client().Leases(t.Context())
		if err == nil && len(resp.Leases) != want {
			err = fmt.Errorf("%d, want %d", len(resp.Leases), want)
		}
		return err
	})
}

func TestRawBytesAreFlannels(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	p := netip.MustParsePrefix
	cases := []struct {
		subnets    lease.Subnets
		attrs      lease.Attrs
		key, value string
	}{
		{ // udp: no BackendType at all
			lease.Subnets{V4: p("10.5.52.0/24")}, lease.Attrs{PublicIP: netip.MustParseAddr("1.2.3.4")},
			"/coreos.com/network/subnets/10.5.52.0-24",
			`{"PublicIP":"1.2.3.4","PublicIPv6":null}`,
		},
		{
			lease.Subnets{V4: p("10.5.53.0/24")},
			lease.Attrs{PublicIP: netip.MustParseAddr("192.168.64.3"), BackendType: "vxlan",
				BackendData: []byte(`{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}`)},
			"/coreos.com/network/subnets/10.5.53.0-24",
			`{"PublicIP":"192.168.64.3","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}`,
		},
		{
			lease.Subnets{V4: p("10.12.13.0/24"), V6: p("fd00:12:13::/56")},
			lease.Attrs{PublicIP: netip.MustParseAddr("1.2.3.5"), PublicIPv6: netip.MustParseAddr("2001:db8::5"),
				Weft: &lease.Weft{Node: "n1"}},
			"/coreos.com/network/subnets/10.12.13.0-24&fd00:12:13::-56",
			`{"PublicIP":"1.2.3.5","PublicIPv6":"2001:db8::5","Weft":{"Node":"n1"}}`,
		},
	}
	for _, c := range cases {
		if _, err := s.Put(t.Context(), c.subnets, c.attrs, lease.TTL, 0); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := srv.Client().Get(t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Kvs) != len(cases) {
		t.Errorf("%d keys in the store, want %d", len(resp.Kvs), len(cases))
	}
	for _, c := range cases {
		resp, err := srv.Client().Get(t.Context(), c.key)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", c.key, resp, err)
		}
		if got := string(resp.Kvs[0].Value); got != c.value {
			t.Errorf("%s\n got %s\nwant %s", c.key, got, c.value)
		}
		ttl, err := srv.Client().TimeToLive(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease))
		if err != nil || ttl.GrantedTTL != 86400 {
			t.Errorf("%s: granted %d s (%v), want 86400", c.key, ttl.GrantedTTL, err)
		}
	}
}

func TestTwentyConcurrentCreatorsOneWins(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		s := newStore(t, srv.Endpoint())
		wg.Go(func() { _, errs[i] = s.Put(t.Context(), subnet(1), attrs(i), lease.TTL, 0) })
	}
	wg.Wait()
	if won, lost := count(errs); won != 1 || lost != 19 {
		t.Errorf("%d won and %d had a conflict, want 1 and 19: %v", won, lost, errs)
	}
	leases(t, srv, 1) // losers revoke theirs
}

func TestManyRecords(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	const n = 5000
	fill(t, srv, n)
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	await.True(t, "all records", func() bool { last, _, _ := w.snapshot(); return len(last.Records) == n })
	put(t, s, n, lease.TTL, 0)
	await.True(t, "one more", func() bool { last, _, _ := w.snapshot(); return len(last.Records) == n+1 })
	last, _, lost := w.snapshot()
	if len(last.Bad) != 0 || lost != 0 {
		t.Errorf("%d bad records and %d losses", len(last.Bad), lost)
	}
}

// fill writes n records without lease, a hundred at a time.
func fill(t testing.TB, srv *etcdtest.Server, n int) {
	t.Helper()
	c := srv.Client()
	for i := 0; i < n; i += 100 {
		var ops []clientv3.Op
		for j := i; j < min(i+100, n); j++ {
			v := fmt.Sprintf(
				`{"PublicIP":"192.0.%d.%d","PublicIPv6":null,"BackendType":"vxlan","BackendData":{"VNI":1,"VtepMAC":"c6:d2:32:6f:8f:44"}}`, j/256, j%256)
			ops = append(ops, clientv3.OpPut("/coreos.com/network/subnets/"+subnet(j).Key(), v))
		}
		if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}
