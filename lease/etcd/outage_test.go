package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
	"weft/test/netns"
)

func TestWatchDeliversCompleteDebouncedSets(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	w.records(t)
	var want []int
	_, before, _ := w.snapshot()
	for i := range 50 {
		put(t, s, i, lease.TTL, 0)
		want = append(want, i)
	}
	w.records(t, want...)
	if _, after, _ := w.snapshot(); after-before > 25 {
		t.Errorf("%d snapshots for 50 quick changes", after-before)
	}
	if err := s.CreateConfig(t.Context(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the config", func() bool { last, _, _ := w.snapshot(); return string(last.Config) == "{}" })
	if _, err := srv.Client().Delete(t.Context(), "/coreos.com/network/config"); err != nil {
		t.Fatal(err)
	}
	await.True(t, "no config", func() bool { last, _, _ := w.snapshot(); return last.Config == nil })
	rawPut(t, srv, "/coreos.com/network/config", "")
	await.True(t, "an empty config", func() bool {
		last, _, _ := w.snapshot()
		return last.Config != nil && len(last.Config) == 0
	})
}

// TestExpiry: the end of our own record is known exactly, that of another's to be TTL after its write, and
// that of one that was there before us is not known. A reservation has none.
func TestExpiry(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	other, s := newStore(t, srv.Endpoint()), newStore(t, srv.Endpoint())
	before := put(t, other, 1, lease.TTL, 0)
	put(t, other, 2, 0, 0)
	w := watch(t, s)
	w.records(t, 1, 2)
	put(t, s, 3, time.Hour, 0)
	put(t, other, 4, lease.TTL, 0)
	w.records(t, 1, 2, 3, 4)
	want := func(what string, i int, ttl time.Duration) {
		t.Helper()
		last, _, _ := w.snapshot()
		if at := last.Records[i].Expires; at.IsZero() != (ttl == 0) ||
			ttl != 0 && (time.Until(at)-ttl).Abs() > time.Minute {
			t.Errorf("%s expires at %s, want in %s", what, at, ttl)
		}
	}
	want("what was there before", 0, 0)
	want("a reservation", 1, 0)
	want("our own", 2, time.Hour)
	want("another's", 3, lease.TTL)
	put(t, other, 1, lease.TTL, before)
	await.True(t, "the renewal", func() bool {
		last, _, _ := w.snapshot()
		return last.Records[0].Revision > before
	})
	want("what was renewed", 0, lease.TTL)
	put(t, other, 5, 2*time.Second, 0)
	w.records(t, 1, 2, 3, 4, 5)
	w.records(t, 1, 2, 3, 4)
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint(), impatient)
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	rev := put(t, s, 2, lease.TTL, 0)
	w.records(t, 1, 2)
	_, _, lost := w.snapshot()
	srv.Kill()
	w.lostAfter(t, lost)
	cpu := cpuTime(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Snapshot(ctx); err == nil {
		t.Error("a snapshot of a dead etcd")
	}
	w.lostAfter(t, lost+1) // it goes on trying
	t.Logf("CPU of this process during the outage, all tests included: %s", cpuTime(t)-cpu)
	_, changes, _ := w.snapshot()
	srv.Start()
	w.changedAfter(t, changes) // recovery shows, though nothing changed
	w.records(t, 1, 2)
	if err := s.Delete(t.Context(), subnet(2), rev); err != nil {
		t.Fatal(err)
	}
	put(t, s, 3, lease.TTL, 0)
	w.records(t, 1, 3)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.missing[subnet(1).Key()] != 0 {
		t.Error("a record went missing meanwhile")
	}
}

// TestRestartForgetsEnds: an etcd that starts gives every lease its whole time anew. What we knew of
// another's is forgotten, so that nobody takes it for ended too early; our own is renewed as before.
func TestRestartForgetsEnds(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s, other := newStore(t, srv.Endpoint()), newStore(t, srv.Endpoint())
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	put(t, other, 2, lease.TTL, 0)
	w.records(t, 1, 2)
	ends := func() [2]time.Time {
		last, _, _ := w.snapshot()
		return [2]time.Time{last.Records[0].Expires, last.Records[1].Expires}
	}
	before := ends()
	if before[0].IsZero() || before[1].IsZero() {
		t.Fatalf("ends %s", before)
	}
	srv.Kill()
	srv.Start()
	await.True(t, "only ours is known", func() bool { return ends() == [2]time.Time{before[0], {}} })
}

func TestPauseIsNoticed(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint(), impatient)
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	put(t, s, 2, lease.TTL, 0)
	// by the stream, which is there: a pause before would be that of a stream that cannot be opened
	w.records(t, 1, 2)
	_, _, lost := w.snapshot()
	srv.Pause()
	w.silentAfter(t, lost)
	_, changes, _ := w.snapshot()
	srv.Resume()
	w.changedAfter(t, changes)
	put(t, s, 3, lease.TTL, 0)
	w.records(t, 1, 2, 3)
}

// TestDeadEndpointIsPassedOver has beside the member that serves one that refuses connections, one that takes
// them and says nothing, as one that is frozen does.
func TestDeadEndpointIsPassedOver(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel takes connections, and nobody reads them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing was written
	for name, dead := range map[string]string{"refuses": "http://127.0.0.1:1", "silent": "http://" +
		silent.Addr().String()} {
		s := newStore(t, dead, func(c *etcd.Config) { c.Endpoints = append(c.Endpoints, srv.Endpoint()) })
		w := watch(t, s)
		if _, err := s.Put(t.Context(), subnet(1), attrs(1), lease.TTL, 0); err != nil &&
			!errors.Is(err, lease.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
		w.records(t, 1)
		if _, _, lost := w.snapshot(); lost != 0 {
			t.Errorf("%s: lost %v", name, w.losses)
		}
	}
}

func TestQuietWatchIsNotLost(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	w := watch(t, newStore(t, srv.Endpoint(), func(c *etcd.Config) { c.RelistEvery = time.Second }))
	w.records(t)
	_, before, _ := w.snapshot()
	await.True(t, "lists", func() bool { _, n, _ := w.snapshot(); return n >= before+3 })
	if _, _, lost := w.snapshot(); lost != 0 {
		t.Errorf("lost %d times: %v", lost, w.losses)
	}
}

// hears waits for three signs of life: of a watch that has just listed, two may be the answers to its
// beginning.
func hears(t *testing.T, s *etcd.Store) {
	t.Helper()
	for range 3 {
		last := s.Heard().At
		await.True(t, "a sign of life", func() bool { return s.Heard().At.After(last) })
	}
}

// A quiet etcd is heard again and again, though there is nothing to tell; a hanging one is not.
func TestQuietStoreIsHeard(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	if !s.Heard().At.IsZero() {
		t.Error("heard before anything was asked")
	}
	w := watch(t, s)
	w.changedAfter(t, 0)
	_, before, _ := w.snapshot()
	hears(t, s)
	if _, after, lost := w.snapshot(); after != before || lost != 0 {
		t.Errorf("%d snapshots and %d losses: it was not quiet", after-before, lost)
	}
	hasty := newStore(t, srv.Endpoint(), impatient)
	w = watch(t, hasty)
	w.changedAfter(t, 0)
	hears(t, hasty)
	_, _, lost := w.snapshot()
	srv.Pause()
	w.silentAfter(t, lost)
	heard := hasty.Heard().At
	srv.Resume()
	await.True(t, "a sign of life after the pause", func() bool { return hasty.Heard().At.After(heard) })
}

func TestCompactionWhileDisconnected(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	proxy := newProxy(t, strings.TrimPrefix(srv.Endpoint(), "http://"))
	near, far := newStore(t, srv.Endpoint()), newStore(t, "http://"+proxy.addr())
	w := watch(t, far)
	rev := put(t, near, 1, lease.TTL, 0)
	put(t, near, 2, lease.TTL, 0)
	w.records(t, 1, 2)
	_, _, lost := w.snapshot()
	proxy.cut()
	w.lostAfter(t, lost)
	if err := near.Delete(t.Context(), subnet(1), rev); err != nil {
		t.Fatal(err)
	}
	put(t, near, 3, lease.TTL, 0)
	srv.Compact()
	proxy.mend()
	w.records(t, 2, 3)
}

func TestResumeSeesWhatHappenedMeanwhile(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	proxy := newProxy(t, strings.TrimPrefix(srv.Endpoint(), "http://"))
	near, far := newStore(t, srv.Endpoint()), newStore(t, "http://"+proxy.addr())
	w := watch(t, far)
	rev := put(t, near, 1, lease.TTL, 0)
	w.records(t, 1)
	for i := range 3 {
		_, _, lost := w.snapshot()
		proxy.cut()
		w.lostAfter(t, lost)
		if err := near.Delete(t.Context(), subnet(1+i), rev); err != nil {
			t.Fatal(err)
		}
		rev = put(t, near, 2+i, lease.TTL, 0)
		proxy.mend()
		w.records(t, 2+i)
	}
}

func TestWipedStoreIsAnotherOne(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	first := w.records(t, 1)
	srv.Wipe()
	second := w.records(t)
	if second.ClusterID == first.ClusterID || second.ClusterID == "" {
		t.Errorf("cluster %q became %q", first.ClusterID, second.ClusterID)
	}
	put(t, s, 2, lease.TTL, 0)
	w.records(t, 2)
	// With the same flags the cluster id stays; the revision tells.
	put(t, s, 3, lease.TTL, 0)
	third := w.records(t, 2, 3)
	srv.WipeSameCluster()
	fourth := w.records(t)
	if fourth.ClusterID != third.ClusterID || fourth.Revision >= third.Revision {
		t.Errorf("cluster %s at %d became %s at %d", third.ClusterID, third.Revision, fourth.ClusterID,
			fourth.Revision)
	}
}

func TestRestoredStoreGoesBack(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, srv.Endpoint())
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	dir := srv.Snapshot()
	for i := 2; i < 6; i++ {
		put(t, s, i, lease.TTL, 0)
	}
	newer := w.records(t, 1, 2, 3, 4, 5)
	srv.Restore(dir)
	older := w.records(t, 1)
	if older.ClusterID != newer.ClusterID || older.Revision >= newer.Revision {
		t.Errorf("cluster %s at %d became %s at %d", newer.ClusterID, newer.Revision, older.ClusterID,
			older.Revision)
	}
	put(t, s, 7, lease.TTL, 0)
	w.records(t, 1, 7)
}

// TestBlackHole drops every packet between client and etcd, which lives in a network
// namespace: no reset, no answer, no acknowledgement.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	addr, drop, pass := blackHole(t)
	srv := etcdtest.StartWith(t, etcdtest.Options{Listen: addr,
		Wrap: []string{"ip", "netns", "exec", holeName()}})
	s := newStore(t, srv.Endpoint(), impatient)
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	_, _, lost := w.snapshot()
	drop()
	w.silentAfter(t, lost)
	w.lostAfter(t, lost+1)
	_, changes, _ := w.snapshot()
	pass()
	healed := time.Now()
	w.changedAfter(t, changes)
	t.Logf("back %s after the path healed", time.Since(healed).Round(time.Millisecond))
	put(t, s, 2, lease.TTL, 0)
	w.records(t, 1, 2)
}

func holeName() string { return fmt.Sprintf("wetcd%d", os.Getpid()) }

func blackHole(t *testing.T) (addr netip.Addr, drop, pass func()) {
	t.Helper()
	netns.Need(t)
	run := func(line string) {
		t.Helper()
		f := strings.Fields(line)
		if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s (apt-get install iproute2 nftables)", line, err, out)
		}
	}
	ns := holeName()
	near, far := ns[1:]+"a", ns[1:]+"b" // at most 15 bytes
	// its own: the tests may run twice on a machine
	link := netip.AddrFrom4([4]byte{198, 19, byte(os.Getpid() >> 6), byte(os.Getpid() << 2)})
	run("ip netns add " + ns)
	t.Cleanup(func() { run("ip netns del " + ns) })
	run("ip link add " + near + " type veth peer name " + far + " netns " + ns)
	run(fmt.Sprintf("ip addr add %s/30 dev %s", link.Next(), near))
	run("ip link set " + near + " up")
	run(fmt.Sprintf("ip -n %s addr add %s/30 dev %s", ns, link.Next().Next(), far))
	run("ip -n " + ns + " link set " + far + " up")
	run("ip -n " + ns + " link set lo up")
	nft := "ip netns exec " + ns + " nft "
	return link.Next().Next(), func() {
		run(nft + "add table ip hole")
		run(nft + "add chain ip hole in { type filter hook input priority 0 ; policy drop ; }")
		run(nft + "add chain ip hole out { type filter hook output priority 0 ; policy drop ; }")
	}, func() { run(nft + "delete table ip hole") }
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
