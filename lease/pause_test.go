package lease_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/leasetest"
)

// A keeper that begins paused publishes what its cache has and asks the store for nothing, however long that takes. Resumed, it confirms
// the lease; paused again it lets it run out of time rather than write.
func TestAPausedKeeperWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dir := leasetest.New("c1", []byte(network)), t.TempDir()
		o := options(t, "me", "198.51.100.1")
		o.Cache, o.RawConfig = lease.NewCache(dir, "/net"), []byte(network)
		var log strings.Builder
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		first := newKeeper(t, store, o)
		o.Logger = nil
		stop := run(first)
		time.Sleep(time.Minute)
		if err := first.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		cached, err := lease.NewCache(dir, "/net").Load()
		if err != nil {
			t.Fatal(err)
		}
		before, err := store.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var set lease.Set
		o.Cache, o.Cached, o.Paused = lease.NewCache(dir, "/net"), &cached, true
		o.Publish = func(s lease.Set) { set = s }
		second := newKeeper(t, store, o)
		stopSecond := run(second)
		time.Sleep(2 * lease.TTL / 3)
		synctest.Wait() // for what was published
		if set.Own.Subnets != cached.Own.Subnets {
			t.Errorf("published %v, cached %v", set.Own.Subnets, cached.Own.Subnets)
		}
		after, err := store.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if before.Revision != after.Revision || second.Status().State != lease.Unconfirmed {
			t.Errorf("revision %d, before %d; %s", after.Revision, before.Revision, second.Status().State)
		}
		second.Resume()
		time.Sleep(time.Minute) // the first one hears of what the second one writes
		if err := stop(); err != nil {
			t.Error(err)
		}
		if log.Len() > 0 {
			t.Errorf("the paused one complains:\n%s", log.String())
		}
		if st := second.Status(); st.State != lease.Held || st.Own.Subnets != cached.Own.Subnets {
			t.Errorf("%s of %v", st.State, st.Own.Subnets)
		}
		if err := stopSecond(); err != nil {
			t.Error(err)
		}
	})
}
