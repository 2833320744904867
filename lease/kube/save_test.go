package kube

import (
	"errors"
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

// TestStopped stops a core. After that it asks for nothing, whatever it is told.
func TestStopped(t *testing.T) {
	t.Parallel()
	c := newTestCore(t)
	stopped := false
	for events := []event{begin{}, found{name: "a"}, stop{}}; len(events) > 0; events = events[1:] {
		for _, f := range c.step(c.now, events[0]) {
			switch f.(type) {
			case lease.SaveCache:
				events = append(events, lease.Saved{Written: true})
			case PatchNode:
				events = append(events, patched{err: errors.New("no answer")})
			case Stopped:
				stopped = true
			}
		}
	}
	if !stopped {
		t.Fatal("it does not end")
	}
	late := []event{news{changed: true, proven: true}, found{name: "a"}, patched{err: errors.New("late")}, probed{}, lease.Saved{Written: true}, begin{}, stop{}}
	for _, e := range late {
		if effects := c.step(c.now, e); len(effects) > 0 {
			t.Errorf("after %T it asks for %#v", e, effects)
		}
	}
}
