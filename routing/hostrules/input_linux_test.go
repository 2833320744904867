package hostrules

import (
	"slices"
	"testing"
	"time"

	"weft/lease"
)

// Where others change rules all the time, and reading them takes long, as with a kube-proxy that has thousands of services, they
// are not read with every change.
func TestInputRulesAreReadForAHundredthOfTheTime(t *testing.T) {
	n := inputNotes{asked: time.Now().Add(-time.Second), took: time.Second, generation: Changes() + 1, found: []string{"as before"}}
	if got := n.notes(Guard{}, lease.Set{}); !slices.Equal(got, []string{"as before"}) {
		t.Errorf("got %q", got)
	}
	n.asked = n.asked.Add(-inputShare * n.took)
	if got := n.notes(Guard{}, lease.Set{}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
