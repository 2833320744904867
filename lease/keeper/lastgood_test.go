package keeper_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// lastGood is the configuration that a start without the store would have.
func lastGood(dir string) string {
	c, err := belief.NewCache(dir, "/net").Load()
	if err != nil {
		return "none"
	}
	return string(c.Memory.Config)
}

// Whatever the store has as its configuration, the cache keeps the one that packets go by, however
// often the node restarts.
func TestTheCacheKeepsTheLastGoodConfig(t *testing.T) {
	for name, other := range map[string]string{
		"typo": `{"Network":"10.244.0.0/16","SubnetLen":"24"}`, "truncated": `{"Network":"10.2`,
		"another": `{"Network":"10.5.0.0/16"}`, "gone": "",
		"of a backend": `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlna"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, dir := leasetest.New("c1", []byte(network)), t.TempDir()
				o := options(t, "me", "198.51.100.1")
				o.Cache, o.RawConfig = belief.NewCache(dir, "/net"), []byte(network)
				o.CheckConfig = func(b []byte) (lease.NetworkConfig, error) {
					c, err := lease.ParseNetworkConfig(b)
					if err == nil && c.BackendType == "vxlna" {
						err = &lease.ConfigError{Key: "Backend.Type"}
					}
					return c, err
				}
				stop := run(newKeeper(t, store, o))
				time.Sleep(5 * time.Second)
				if other == "" {
					store.SetConfig(nil)
				} else {
					store.SetConfig([]byte(other))
				}
				r := leasetest.Record(t, "10.244.9.0/24", "n9", "192.0.2.9", 0) // so that there is something to save
				if _, err := store.Put(t.Context(), r.Subnets, r.Attrs, lease.TTL, 0); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					time.Sleep(time.Minute)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if got := lastGood(dir); got != network {
						t.Fatalf("the cache has %s", got)
					}
					cached, err := belief.NewCache(dir, "/net").Load()
					if err != nil {
						t.Fatal(err)
					}
					o.Cache, o.Cached = belief.NewCache(dir, "/net"), &cached
					k := newKeeper(t, store, o)
					stop = run(k)
					time.Sleep(time.Minute)
					if st := k.Status(); st.State != lease.Held || st.ConfigErr == nil || st.Peers != 1 {
						t.Errorf("%s, config %v, %d peers", st.State, st.ConfigErr, st.Peers)
					}
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What nobody has served yet takes no place in the cache.
func TestAnUnprovenConfigIsNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, dir := leasetest.New("c1", []byte(network)), t.TempDir()
		o := options(t, "me", "198.51.100.1")
		o.Cache, o.Unproven = belief.NewCache(dir, "/net"), true
		k := newKeeper(t, store, o)
		stop := run(k)
		time.Sleep(time.Minute)
		if got := lastGood(dir); got != "none" {
			t.Errorf("the cache has %s", got)
		}
		k.Proven()
		synctest.Wait()
		if got := lastGood(dir); got == "none" {
			t.Error("the cache has none")
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// A first subnet is not taken by a configuration that the store has not.
func TestNoFirstSubnetByAnotherConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leasetest.New("c1", []byte(`{"Network":"10.5.0.0/16"}`))
		k := newKeeper(t, store, options(t, "me", "198.51.100.1"))
		stop := run(k)
		time.Sleep(5 * time.Minute)
		var changed *keeper.ConfigChangedError
		if st := k.Status(); st.State != lease.Acquiring || !errors.As(st.ConfigErr, &changed) {
			t.Errorf("%s, %v", st.State, st.ConfigErr)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}
