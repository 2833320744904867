package kube

import (
	"net/netip"
	"testing"

	"weft/lease"
)

// The core learns whether a save wrote: one that found nothing new does not delay the next.
func TestSavedSaysWhetherItWrote(t *testing.T) {
	t.Parallel()
	own := lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.1.0/24")}, Attrs: lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.1")}}
	l := loop{m: &Manager{o: Options{Cache: lease.NewCache(t.TempDir(), "kubernetes")}}, answers: make(chan event, 1)}
	for _, want := range []bool{true, false} {
		l.perform(lease.SaveCache{Cached: lease.Cached{Own: own}})
		if got, ok := (<-l.answers).(lease.Saved); !ok || got.Err != nil || got.Written != want {
			t.Errorf("got %+v, want Written %v", got, want)
		}
	}
	l.beside.Wait()
}
