package kube

import (
	"errors"
	"testing"

	"weft/lease/keeper"
)

// TestStopped stops a core. After that it asks for nothing, whatever it is told.
func TestStopped(t *testing.T) {
	t.Parallel()
	c := newTestCore(t)
	events := []keeper.Event{keeper.Begin{}, Found{Name: "a"}, stop{}}
	for ; len(events) > 0; events = events[1:] {
		for _, f := range c.Step(c.Now, events[0]) {
			switch f.(type) {
			case keeper.SaveCache:
				events = append(events, keeper.Saved{Written: true})
			case PatchNode:
				events = append(events, Patched{Err: errors.New("no answer")})
			}
		}
	}
	if c.phase != idle {
		t.Fatal("it does not end")
	}
	late := []keeper.Event{news{changed: true, proven: true}, Found{Name: "a"}, Patched{Err: errors.New("late")},
		Probed{}, keeper.Saved{Written: true}, keeper.Begin{}, stop{}}
	for _, e := range late {
		if effects := c.Step(c.Now, e); len(effects) > 0 {
			t.Errorf("after %T it asks for %#v", e, effects)
		}
	}
}
