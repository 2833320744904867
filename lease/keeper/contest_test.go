package keeper_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// TestBothAtOnce: a machine and its copy, or two, come up in the same moment. One has the identity's subnet,
// the others wait; and whoever is left has it after that.
func TestBothAtOnce(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("sharedState=%v", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := leasetest.New("c", []byte(network))
				s.SetLatency(10 * time.Millisecond)
				const copies = 3
				keepers, stops := make([]*keeper.Keeper, copies), make([]func() error, copies)
				for i := range keepers {
					o := options(t, "a", fmt.Sprintf("192.0.2.%d", i+1))
					o.State = fmt.Sprintf("state-%d", i)
					if shared {
						o.State = "state"
					}
					keepers[i] = newKeeper(t, s, o)
					stops[i] = run(keepers[i])
				}
				for left := copies; left > 0; left-- {
					time.Sleep(time.Minute)
					snap, _ := s.Snapshot(t.Context())
					held := 0
					for i, k := range keepers {
						if stops[i] == nil {
							continue
						}
						switch st := k.Status(); st.State {
						case lease.Held:
							held = i + 1
							if len(snap.Records) != 1 || snap.Records[0].PublicIP != st.Own.PublicIP {
								t.Errorf("%d left: %s holds %s, the store has %v", left, st.Own.PublicIP, st.Own.Subnets,
									snap.Records)
							}
						case lease.Waiting:
						default:
							t.Errorf("%d left: %s, %v", left, st.State, st.Err)
						}
					}
					if held == 0 {
						t.Fatalf("%d left: nobody holds a subnet", left)
					}
					if err := stops[held-1](); err != nil {
						t.Error(err)
					}
					stops[held-1] = nil
				}
			})
		})
	}
}

// TestQuarrelIsNoStorm: somebody writes over our record whenever it is put back, for twenty minutes. The
// subnet is never given up, the store is not flooded, the log neither, and when it ends so does all of it.
func TestQuarrelIsNoStorm(t *testing.T) {
	for name, value := range map[string]string{
		"MTU":              `{"PublicIP":"192.0.2.1","PublicIPv6":null,"Weft":{"Node":"a","State":"a","MTU":1471}}`,
		"another state":    `{"PublicIP":"192.0.2.9","PublicIPv6":null,"Weft":{"Node":"a","State":"b"}}`,
		"another identity": `{"PublicIP":"192.0.2.9","PublicIPv6":null,"Weft":{"Node":"b"}}`,
		"none":             `{"PublicIP":"192.0.2.9","PublicIPv6":null}`,
		"garbage":          `{`,
		"deleted":          ``,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := leasetest.New("c", []byte(network))
				var out bytes.Buffer // read once the keeper has ended
				o := options(t, "a", "192.0.2.1")
				o.State, o.Previous = "a", leasetest.Subnets(t, "10.244.5.0/24")
				o.Logger = slog.New(slog.NewTextHandler(&out, nil))
				var mu sync.Mutex
				var given []lease.Subnets
				o.Publish = func(set lease.Set) {
					mu.Lock()
					defer mu.Unlock()
					given = append(given, set.Own.Subnets)
				}
				k := newKeeper(t, s, o)
				stop := run(k)
				time.Sleep(time.Second)
				ours := s.Value("10.244.5.0-24")
				mu.Lock()
				before, writes, waited := len(given), 0, 0
				mu.Unlock()
				for began := time.Now(); time.Since(began) < 20*time.Minute; time.Sleep(50 * time.Millisecond) {
					if st := k.Status(); st.State == lease.Waiting && st.Err != nil {
						waited++
					}
					switch {
					case !bytes.Equal(s.Value("10.244.5.0-24"), ours):
					case value == "":
						s.Remove("10.244.5.0-24")
						writes++
					default:
						s.PutRaw("10.244.5.0-24", []byte(value), 20*time.Hour)
						writes++
					}
				}
				if most := int(20*time.Minute/(5*time.Second)) + 10; writes > most || writes < 60 {
					t.Errorf("it was put back %d times, want 60 to %d", writes, most)
				}
				if waited < writes {
					t.Errorf("it was found waiting %d times, in %d quarrels", waited, writes)
				}
				time.Sleep(time.Minute)
				if st := k.Status(); !st.Ready() || !bytes.Equal(s.Value("10.244.5.0-24"), ours) {
					t.Errorf("a minute later: %s, %v, the store has %s", st.State, st.Err, s.Value("10.244.5.0-24"))
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				for _, g := range given[before:] {
					if g != o.Previous {
						t.Fatalf("given up: %v", given)
					}
				}
				if n := strings.Count(out.String(), "\n") - strings.Count(out.String(), "removals are not"); n > 2*20+20 {
					t.Errorf("%d lines for %d writes\n%s", n, writes, out.String()[max(0, out.Len()-5000):])
				}
			})
		})
	}
}

// TestUsualRestartAsksNobody: neither a first start, nor a second one, with a cache or without, with a
// record of a weft that named no state directory, nor a new address of a running node.
func TestUsualRestartAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := leasetest.New("c", []byte(network))
		dir := t.TempDir()
		start := func(state string) {
			t.Helper()
			began := time.Now()
			o := options(t, "a", "192.0.2.1")
			o.State, o.Cache = state, belief.NewCache(dir, "test")
			if c, err := o.Cache.Load(); err == nil {
				o.Cached = &c
			}
			k := newKeeper(t, s, o)
			stop := run(k)
			synctest.Wait()
			if st := k.Status(); !st.Ready() || time.Since(began) > 0 {
				t.Errorf("state %q: %s after %s, %v", state, st.State, time.Since(began), st.Err)
			}
			k.SetLocal(local("192.0.2.7"))
			synctest.Wait()
			k.SetLocal(local("192.0.2.1"))
			synctest.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		start("") // as weft was
		start("a")
		start("a")
		if n := s.Told(); n > 0 {
			t.Errorf("%d messages", n)
		}
	})
}
