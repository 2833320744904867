package etcd_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"weft/lease"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// What strangers write does not decide how much memory a list, or a watch that is behind, takes: large
// values and keys cost themselves, and the records between them are read. Alone, since it looks at the heap.
func TestLargeRecordsCostOnlyThemselves(t *testing.T) {
	srv := etcdtest.StartWith(t, etcdtest.Options{Args: []string{"--max-request-bytes=9000000"}})
	s := newStore(t, srv.Endpoint())
	const dir = "/coreos.com/network/subnets/"
	value := `{"PublicIP":"192.0.2.1","x":"` + strings.Repeat("x", 1_400_000) + `"}`
	w := watch(t, s)
	w.changedAfter(t, 0)
	proxy := newProxy(t, strings.TrimPrefix(srv.Endpoint(), "http://"))
	behind := watch(t, newStore(t, "http://"+proxy.addr()))
	behind.changedAfter(t, 0)
	proxy.cut()
	const large = 40
	for i := range large {
		rawPut(t, srv, fmt.Sprintf("%s10.77.%d.0-24", dir, i), value)
		if i%10 == 0 {
			put(t, s, i, lease.TTL, 0)
		}
	}
	strong, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.Endpoint()},
		MaxCallSendMsgSize: 16 << 20, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strong.Close() }()
	if _, err := strong.Put(t.Context(), dir+"10.78.0.0-24", value+strings.Repeat(" ", 5_000_000)); err != nil {
		// more than is received at once
		t.Fatal(err)
	}
	rawPut(t, srv, dir+strings.Repeat("k", 1_400_000), "{}")
	rawPut(t, srv, dir+"z", "{}")
	complete := func(got lease.Snapshot) bool { return len(got.Records) == 4 && len(got.Bad) == large+3 }
	await.True(t, "the watch has all", func() bool { last, _, _ := w.snapshot(); return complete(last) })

	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := s.Snapshot(t.Context())
	if err != nil || !complete(got) {
		t.Fatalf("%d records, %d that are none: %v", len(got.Records), len(got.Bad), err)
	}
	runtime.ReadMemStats(&after)
	if n := after.HeapSys - min(before.HeapSys, after.HeapSys); n > 40<<20 {
		t.Errorf("the heap grew by %d MB for %d MB of large records", n>>20, large*len(value)>>20)
	}
	for _, b := range got.Bad {
		want := lease.RejectValue
		if strings.HasPrefix(b.Key, "k") || b.Key == "z" {
			want = lease.RejectKey
		}
		if b.Reason != want || len(b.Key) > 300 || len(b.Detail) > 400 || b.Revision == 0 {
			t.Errorf("%.60s…: %v (%.400s)", b.Key, b.Reason, b.Detail)
		}
	}
	proxy.mend()
	await.True(t, "the watch that was behind has all", func() bool {
		last, _, _ := behind.snapshot()
		return complete(last)
	})
	if _, err := srv.Client().Delete(t.Context(), dir+strings.Repeat("k", 1_400_000)); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the long key is gone", func() bool {
		last, _, _ := w.snapshot()
		return len(last.Bad) == large+2
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.losses) > 0 {
		t.Errorf("lost %v", w.losses)
	}
}

// A record that cannot be received, and that is the last thing that was written, is passed over once.
// Nobody writes after it: an etcd of 3.6 then answers no ping, unlike that of 3.4.23, and the store is
// heard all the same.
func TestLastRecordIsTooLarge(t *testing.T) {
	t.Parallel()
	srv := etcdtest.StartWith(t, etcdtest.Options{Args: []string{"--max-request-bytes=9000000"}})
	strong, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.Endpoint()},
		MaxCallSendMsgSize: 16 << 20, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strong.Close() }()
	if _, err := strong.Put(t.Context(), "/coreos.com/network/subnets/10.78.0.0-24",
		strings.Repeat(" ", 5_000_000)); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	w.changedAfter(t, 0)
	hears(t, s)
	hears(t, s)
	if last, lists, lost := w.snapshot(); lists != 1 || lost != 0 || len(last.Bad) != 1 {
		t.Errorf("%d lists, %d losses, %d records that are none", lists, lost, len(last.Bad))
	}
}
