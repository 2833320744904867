package keeper_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/leasetest"
)

// In a large network the cache is written now and then, and at the end; what our own lease is, at once.
func TestCacheIsWrittenNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.New("c1", []byte(network))
		put := func(i int) {
			r := leasetest.Record(t, fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprint("n", i),
				fmt.Sprintf("192.0.2.%d", i), 0)
			if _, err := store.Put(t.Context(), r.Subnets, r.Attrs, lease.TTL, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 200 {
			put(i + 1)
		}
		dir := t.TempDir()
		o := options(t, "me", "198.51.100.1")
		o.Cache = belief.NewCache(dir, "/net")
		stop := run(newKeeper(t, store, o))
		cached := func(peers int) error {
			synctest.Wait()
			c, err := belief.NewCache(dir, "/net").Load()
			if err == nil && (len(c.Memory.Peers) != peers || c.Own.Node() != "me") {
				err = fmt.Errorf("%d records and the lease of %q are cached, want %d and ours", len(c.Memory.Peers),
					c.Own.Node(), peers)
			}
			return err
		}
		time.Sleep(5 * time.Second)
		if err := cached(201); err != nil {
			t.Errorf("at rest: %v", err)
		}
		put(201)
		if err := cached(202); err != nil {
			t.Errorf("after rest, the first change is written at once: %v", err)
		}
		put(202)
		if err := cached(202); err != nil {
			t.Errorf("the next one has to wait: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := cached(203); err != nil {
			t.Errorf("at rest again: %v", err)
		}
		put(203)
		synctest.Wait()
		put(204)
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := cached(205); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
