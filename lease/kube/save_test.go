package kube

import (
	"errors"
	"testing"

	"weft/lease"
)

// TestStopped stops a core. After that it asks for nothing, whatever it is told.
func TestStopped(t *testing.T) {
	t.Parallel()
	c := newTestCore(t)
	for events := []lease.Event{lease.Begin{}, Found{Name: "a"}, stop{}}; len(events) > 0; events = events[1:] {
		for _, f := range c.Step(c.Now, events[0]) {
			switch f.(type) {
			case lease.SaveCache:
				events = append(events, lease.Saved{Written: true})
			case PatchNode:
				events = append(events, Patched{Err: errors.New("no answer")})
			}
		}
	}
	if c.phase != idle {
		t.Fatal("it does not end")
	}
	late := []lease.Event{news{changed: true, proven: true}, Found{Name: "a"}, Patched{Err: errors.New("late")},
		Probed{}, lease.Saved{Written: true}, lease.Begin{}, stop{}}
	for _, e := range late {
		if effects := c.Step(c.Now, e); len(effects) > 0 {
			t.Errorf("after %T it asks for %#v", e, effects)
		}
	}
}
