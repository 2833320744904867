package keeper_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

const network = `{"Network":"10.244.0.0/16"}`

func options(t *testing.T, node, addr string) keeper.Options {
	return keeper.Options{Node: node, Config: leasetest.Config(t, network), Local: local(addr), Rand: rng()}
}

// Run starts Run and returns a function that stops it and gives its error.
func run(k *keeper.Keeper) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

func newKeeper(t *testing.T, s lease.Store, o keeper.Options) *keeper.Keeper {
	t.Helper()
	k, err := keeper.New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestNewKeeperReportsAllFaults(t *testing.T) {
	_, err := keeper.New(leasetest.New("c", nil), keeper.Options{
		Node: "a b", RenewMargin: 24 * time.Hour,
		Config: leasetest.Config(t, `{"Network":"10.0.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48"}`),
	})
	for _, want := range []string{"node id", "renew margin", "EnableIPv4", "EnableIPv6"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
}

// TestRenewals lets ten days pass: the record is never closer to its end than the
// margin, is written about once a day, and the lease is always held.
func TestRenewals(t *testing.T) {
	for _, margin := range []time.Duration{time.Minute, time.Hour, 12 * time.Hour, 1439 * time.Minute} {
		t.Run(margin.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := leasetest.New("c", []byte(network))
				o := options(t, "a", "192.0.2.1")
				o.RenewMargin = margin
				sets := 0
				o.Publish = func(lease.Set) { sets++ }
				k := newKeeper(t, s, o)
				stop := run(k)
				time.Sleep(time.Second)
				writes, last := 0, int64(0)
				const step = time.Minute
				for range int(240 * time.Hour / step) {
					time.Sleep(step)
					st := k.Status()
					if !st.Ready() || st.Err != nil {
						t.Fatalf("%s: %v", st.State, st.Err)
					}
					snap, _ := s.Snapshot(t.Context())
					if len(snap.Records) != 1 || time.Until(snap.Records[0].Expires) < margin-2*step {
						t.Fatalf("%d records; %s left", len(snap.Records), time.Until(snap.Records[0].Expires))
					}
					if snap.Revision != last {
						writes, last = writes+1, snap.Revision
					}
				}
				period := lease.TTL - margin
				if most := int(240*time.Hour/(period-period/10)) + 2; writes > most ||
					writes < int(240*time.Hour/lease.TTL) {
					t.Errorf("%d writes in ten days, want at most %d", writes, most)
				}
				if sets != 1 {
					t.Errorf("%d sets published, want one: nothing changed but clocks", sets)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFirstSubnetIsRefused: a rival at our address, and another configuration than ours, are named in Status.
func TestFirstSubnetIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		s.PutRaw("10.244.5.0-24", []byte(`{"PublicIP":"192.0.2.1","Weft":{"Node":"b"}}`), 7*time.Hour)
		status := func(address string) lease.Status {
			k := newKeeper(t, s, options(t, "a", address))
			stop := run(k)
			time.Sleep(30 * time.Second)
			st := k.Status()
			if err := stop(); err != nil {
				t.Error(err)
			}
			return st
		}
		st := status("192.0.2.1")
		var rival *lease.RivalError
		if !errors.As(st.Err, &rival) || st.State != lease.Acquiring {
			t.Fatalf("%s: %v", st.State, st.Err)
		}
		for _, want := range []string{`"a"`, `"b"`, "6h59m", "10.244.5.0/24"} {
			if !strings.Contains(st.Err.Error(), want) {
				t.Errorf("%v does not say %s", st.Err, want)
			}
		}
		s.SetConfig([]byte(`{"Network":"10.9.0.0/16"}`))
		var changed *keeper.ConfigChangedError
		if st := status("192.0.2.2"); !errors.As(st.Err, &changed) {
			t.Errorf("config changed: %v", st.Err)
		}
	})
}

func TestRunWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", nil)
		s.SetDown(true)
		o := options(t, "a", "192.0.2.1")
		o.Seed = []byte(network)
		k := newKeeper(t, s, o)
		stop := run(k)
		time.Sleep(10 * time.Minute)
		if st := k.Status(); st.State != lease.Acquiring || st.StoreErr == nil {
			t.Errorf("%s: %v", st.State, st.StoreErr)
		}
		s.SetDown(false)
		time.Sleep(2 * time.Minute)
		if st := k.Status(); !st.Ready() {
			t.Errorf("%s: %v", st.State, st.Err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestBothAtOneAddress: neither saw the other when it created its record. One of
// them keeps it.
func TestBothAtOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		s.SetLatency(10 * time.Millisecond)
		keepers := make([]*keeper.Keeper, 8)
		for i := range keepers {
			keepers[i] = newKeeper(t, s, options(t, "node"+string(rune('a'+i)), "192.0.2.1"))
			stop := run(keepers[i])
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(10 * time.Minute)
		held := 0
		var rival *lease.RivalError
		for _, k := range keepers {
			if st := k.Status(); st.Ready() {
				held++
			} else if !errors.As(st.Err, &rival) {
				t.Error(st.Err)
			}
		}
		snap, _ := s.Snapshot(t.Context())
		if held != 1 || len(snap.Records) != 1 {
			t.Errorf("%d nodes hold a subnet, %d records, want one each", held, len(snap.Records))
		}
	})
}

// TestRunIsIdleInAnOutage counts calls while the store is away for an hour.
func TestRunIsIdleInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &counting{Store: leasetest.New("c", []byte(network))}
		k := newKeeper(t, s, options(t, "a", "192.0.2.1"))
		s.SetDown(true)
		stop := run(k)
		time.Sleep(time.Hour)
		if n := s.count(); n > 130 {
			t.Errorf("%d calls in an hour of outage", n)
		}
		if st := k.Status(); st.StoreErr == nil || st.Ready() {
			t.Errorf("%s, store error %v", st.State, st.StoreErr)
		}
		s.SetDown(false)
		time.Sleep(2 * time.Second)
		if st := k.Status(); !st.Ready() || st.StoreErr != nil {
			t.Errorf("two seconds after the outage: %s, %v, store error %v", st.State, st.Err, st.StoreErr)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

type counting struct {
	*leasetest.Store
	mu sync.Mutex
	n  int
}

func (c *counting) Snapshot(ctx context.Context) (lease.Snapshot, error) {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
	return c.Store.Snapshot(ctx)
}

func (c *counting) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func TestRunEndsWhenTheWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		k := newKeeper(t, deaf{leasetest.New("c", []byte(network)), broken}, options(t, "a", "192.0.2.1"))
		if err := k.Run(t.Context()); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
	})
}

type deaf struct {
	*leasetest.Store
	err error
}

func (d deaf) Watch(context.Context, func(lease.Snapshot), func(error)) error { return d.err }

func TestLogSaysWhyAndNothingSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		var out bytes.Buffer
		o := options(t, "a", "192.0.2.1")
		o.Previous = lease.Subnets{V4: netip.MustParsePrefix("10.244.1.1/24")} // as in subnet.env
		o.Logger = slog.New(slog.NewTextHandler(&out, nil))
		k := newKeeper(t, s, o)
		stop := run(k)
		time.Sleep(time.Second)
		s.PutRaw("10.244.1.0-24", []byte(`{"PublicIP":"192.0.2.9","Weft":{"Node":"thief"}}`), 0)
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for _, want := range []string{"10.244.1.0/24", "thief", "192.0.2.9", "event=lease_acquired ",
			"event=lease_put_back "} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, out.String())
			}
		}
		if n := strings.Count(out.String(), "\n"); n > 8 {
			t.Errorf("%d lines for one loss:\n%s", n, out.String())
		}
	})
}

func TestAnotherConfigIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		o := options(t, "a", "192.0.2.1")
		o.CheckConfig = func(b []byte) (lease.NetworkConfig, error) {
			c, err := lease.ParseNetworkConfig(b)
			if err == nil && c.BackendType == "nosuch" {
				err = &lease.ConfigError{Key: "Backend.Type"}
			}
			return c, err
		}
		k := newKeeper(t, s, o)
		stop := run(k)
		for _, tt := range []struct {
			config string
			want   error
		}{
			{network, nil},
			{`{"Network":"10.244.0.0/16","Backend":{"Type":"nosuch"}}`, new(lease.ConfigError)},
			{`{"Network":"10.243.0.0/16"}`, new(keeper.ConfigChangedError)},
			{`{"Network":"10.243.0.0/16","SubnetLen":24}`, new(keeper.ConfigChangedError)},
			{network, nil},
			{`{"Network":"x"}`, new(lease.ConfigError)},
		} {
			s.SetConfig([]byte(tt.config))
			time.Sleep(48 * time.Hour) // with renewals
			synctest.Wait()
			st := k.Status()
			var changed *keeper.ConfigChangedError
			if (st.ConfigErr == nil) != (tt.want == nil) || errors.As(tt.want, &changed) != errors.As(st.ConfigErr,
				&changed) {
				t.Errorf("%s: %v, want a %T", tt.config, st.ConfigErr, tt.want)
			}
			if !st.ConfigSeen || string(st.StoreConfig) != tt.config {
				t.Errorf("%s: seen %v, %s", tt.config, st.ConfigSeen, st.StoreConfig)
			}
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A store that answers and in which nothing changes has been seen lately: else the first second of
// an outage would look like the end of a long one.
func TestQuietStoreIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		k := newKeeper(t, s, options(t, "a", "192.0.2.1"))
		if !k.Status().StoreSeen.IsZero() {
			t.Error("a store was seen that nobody asked")
		}
		stop := run(k)
		time.Sleep(4*time.Minute + 30*time.Second)
		if age := time.Since(k.Status().StoreSeen); age > 10*time.Second {
			t.Errorf("a store that answers was last seen %s ago", age)
		}
		s.SetDown(true)
		time.Sleep(40 * time.Second)
		if st := k.Status(); time.Since(st.StoreSeen) != 40*time.Second || st.StoreErr == nil {
			t.Errorf("40 s into an outage: seen %s ago, %v", time.Since(st.StoreSeen), st.StoreErr)
		}
		s.SetDown(false)
		time.Sleep(time.Second)
		if st := k.Status(); time.Since(st.StoreSeen) > time.Second || st.StoreErr != nil {
			t.Errorf("after it: seen %s ago, %v", time.Since(st.StoreSeen), st.StoreErr)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A renewal is no new Set, but what it changes can be asked for.
func TestCurrentFollowsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		const key, value = "10.244.9.0-24", `{"PublicIP":"192.0.2.9","Weft":{"Node":"b"}}`
		s.PutRaw(key, []byte(value), lease.TTL)
		o := options(t, "a", "192.0.2.1")
		var sets []lease.Set
		o.Publish = func(s lease.Set) { sets = append(sets, s) }
		k := newKeeper(t, s, o)
		stop := run(k)
		time.Sleep(time.Hour)
		s.PutRaw(key, []byte(value), lease.TTL)
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		snap, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := snap.Records[len(snap.Records)-1] // ours may be either
		if want.Subnets != leasetest.Subnets(t, "10.244.9.0/24") {
			want = snap.Records[0]
		}
		last := sets[len(sets)-1].Peers
		now := k.Current(last)
		if len(now) != 1 || !now[0].Expires.Equal(want.Expires) || now[0].Revision != want.Revision {
			t.Errorf("%+v, want the end %s and revision %d", now, want.Expires, want.Revision)
		}
		if last[0].Revision == want.Revision {
			t.Error("the renewal made a set: nothing was tried")
		}
		now[0].Revision = 0
		if k.Current(last)[0].Revision == 0 {
			t.Error("the caller's slice is the keeper's")
		}
	})
}
