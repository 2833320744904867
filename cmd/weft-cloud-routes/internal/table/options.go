package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"weft/routing/routecontrol"
)

// Options are those of every cloud.
type Options struct {
	// Networks are the overlay's: no other route is ours.
	Networks []netip.Prefix
	Logger   *slog.Logger
	// Called is told of each call by its name, and of its result: "ok", "throttled", "refused" or "failed". It
	// is nil, or safe for concurrent use.
	Called func(call, result string)
	// Sized is told of the tables after each round in which they could be read; nil for nobody.
	Sized func([]Table)
	// Backoff is the wait before the second try of a call; 0 for a second.
	Backoff time.Duration
}

// Inside reports whether dst is a part of one of the overlay's networks. A route to all of one is nobody's
// subnet, and so not ours: it is neither made nor deleted.
func (o Options) Inside(dst netip.Prefix) bool {
	for _, n := range o.Networks {
		if n.Bits() < dst.Bits() && n.Contains(dst.Addr()) {
			return true
		}
	}
	return false
}

// Errors of calls.
var (
	// ErrFull says that the table takes no more routes of that family. A Changer wraps it.
	ErrFull = errors.New("the table is full")
	// ErrSlow says that the cloud asks for fewer calls, or is busy, and still was after some patience.
	ErrSlow = fmt.Errorf("the cloud asks for patience: %w", routecontrol.ErrPending)
	// ErrDown says that the cloud did not answer, or could not do it: nobody has to mend anything.
	ErrDown = fmt.Errorf("the cloud's API does not work now: %w", routecontrol.ErrPending)
)

// Answer is what a cloud answered to a call, as far as people and metrics have to know.
type Answer int

// Answers.
const (
	OK        Answer = iota
	Throttled        // it asks for fewer calls, or is busy
	Forbidden        // the credentials lack a right, or are none
	Refused          // it will not, and trying again does not help
	Failed           // it could not, or did not answer
)

// Attempts is how often a call is tried before its error counts.
const Attempts = 5

// Call makes a call of a name, again after growing waits while it is throttled or fails, counts it, and says
// what its error means for people. right is what the credentials need for it, in the cloud's words.
func (o Options) Call(ctx context.Context, call, right string, try func() (Answer, error)) error {
	wait := cmp.Or(o.Backoff, time.Second)
	var a Answer
	var err error
	for n := range Attempts {
		if n > 0 && Sleep(ctx, wait/2+rand.N(wait)) != nil {
			break
		}
		wait *= 2
		if a, err = try(); a != Throttled && a != Failed || ctx.Err() != nil {
			break
		}
	}
	if o.Called != nil {
		o.Called(call, map[Answer]string{OK: "ok", Throttled: "throttled", Forbidden: "refused",
			Refused: "refused", Failed: "failed"}[a])
	}
	switch a {
	case OK:
		return nil
	case Throttled:
		return fmt.Errorf("%s: %w: %w", right, err, ErrSlow)
	case Failed:
		return fmt.Errorf("%s: %w: %w", right, err, ErrDown)
	case Forbidden:
		return fmt.Errorf("the credentials of this program may not %s: %w", right, err)
	case Refused:
	}
	return fmt.Errorf("%s: %w", right, err)
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
