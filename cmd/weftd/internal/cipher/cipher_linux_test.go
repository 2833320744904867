package cipher

import (
	"errors"
	"slices"
	"testing"
)

// TestNothingOfWeftdsIsGivenOn: what a process of its own finds in its environment is for Go's runtime.
func TestNothingOfWeftdsIsGivenOn(t *testing.T) {
	got := environment([]string{"WEFT_ETCD_PASSWORD=secret", "GOMEMLIMIT=1GiB", "PATH=/bin", "GOGC", "NOTIFY_SOCKET=/run/x", "GODEBUG=madvdontneed=1"})
	if want := []string{"GOMEMLIMIT=1GiB", "GOGC", "GODEBUG=madvdontneed=1"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestByHand: whoever types the verb is told that there is nothing to do.
func TestByHand(t *testing.T) {
	for _, args := range [][]string{nil, {"flannel-wg", "more"}} {
		if err := Run(t.Context(), args, "v1"); !errors.Is(err, errByHand) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
