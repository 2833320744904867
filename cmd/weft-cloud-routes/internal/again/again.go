// Package again makes a call of a cloud's API several times, with growing waits in between.
package again

import (
	"context"
	"math/rand/v2"
	"time"
)

// Attempts is how often a call is tried before its error counts.
const Attempts = 5

// Do calls try until it says that another try does no better, or Attempts times, and returns its last error.
// It waits before each further try: before the second one for first or half as much more or less, and then
// for twice as long each time. An error of ctx ends it.
func Do(ctx context.Context, first time.Duration, try func() (again bool, err error)) error {
	var err error
	wait := first
	for n := range Attempts {
		if n > 0 {
			if err := Sleep(ctx, wait/2+rand.N(wait)); err != nil {
				return err
			}
			wait *= 2
		}
		var again bool
		if again, err = try(); !again {
			break
		}
	}
	return err
}

// Sleep waits, or returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
