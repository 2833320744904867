package keeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/leasetest"
)

// slowStore answers everything after three seconds, and delivers a message as late. A message takes two
// requests, as in etcd.
type slowStore struct{ *leasetest.Store }

const slowBy = 3 * time.Second

func (s slowStore) Tell(ctx context.Context, m lease.Message) error {
	time.Sleep(2 * slowBy)
	return s.Store.Tell(ctx, m)
}

func (s slowStore) Listen(ctx context.Context, node string, told func(lease.Message)) error {
	return s.Store.Listen(ctx, node, func(m lease.Message) { time.AfterFunc(slowBy, func() { told(m) }) })
}

// A copy of a machine waits though the answer of the other one takes longer than a round usually lasts: both
// are at a slow store.
func TestSlowAnswerIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slowStore{leasetest.New("c", []byte(network))}
		s.SetLatency(slowBy)
		var keepers []*keeper.Keeper
		for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
			o := options(t, "a", addr)
			o.State = "state"
			k := newKeeper(t, s, o)
			keepers = append(keepers, k)
			stop := run(k)
			defer func() {
				if err := stop(); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(2 * time.Minute)
		}
		for i, want := range []lease.State{lease.Held, lease.Waiting} {
			if st := keepers[i].Status(); st.State != want {
				t.Errorf("%d: %s, %v; want %s", i, st.State, st.Err, want)
			}
		}
	})
}
