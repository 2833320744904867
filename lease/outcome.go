package lease

import (
	"context"
	"errors"
	"time"
)

// racesMost is how many races in a row are retried at once; then it is no race.
const racesMost = 50

// succeeded ends a run of failures.
func (k *Keeper) succeeded() {
	k.failures, k.races, k.retry = 0, 0, time.Time{}
	k.enter(k.stateNow(), nil)
}

// fail sets when to try again, and says what happened.
func (k *Keeper) fail(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // we are being stopped
	}
	now := time.Now()
	if errors.Is(err, ErrConflict) && k.races < racesMost {
		k.races++
		k.retry = now.Add(raceBackoff(k.races, k.o.Rand))
		return
	}
	k.failures++
	k.retry = now.Add(backoff(k.failures, k.o.Rand))
	var rival *RivalError
	switch {
	case errors.As(err, &rival):
		rival.Remaining = k.remaining(ctx, rival.Subnets)
	case !answered(err):
		k.storeSilent(err)
	}
	k.enter(k.stateNow(), err)
}

// remaining asks how long another's record lives; 0 if the store does not say.
func (k *Keeper) remaining(ctx context.Context, s Subnets) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	d, err := k.store.Remaining(ctx, s)
	if err != nil {
		return 0
	}
	return d
}

// answered reports whether err came of what the store says, not of its silence.
func answered(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrNoConfig) || final(err)
}

// final reports whether err stays until somebody changes the store or a node.
func final(err error) bool {
	var rival *RivalError
	var only *IPv6OnlyError
	var contest *ContestError
	var changed *ConfigChangedError
	return errors.As(err, &rival) || errors.As(err, &only) || errors.As(err, &contest) ||
		errors.As(err, &changed) || errors.Is(err, ErrOutOfSubnets)
}

// stateNow derives the state from what we hold.
func (k *Keeper) stateNow() State {
	switch h := k.held; {
	case k.contest != nil, time.Now().Before(k.putBacks.next):
		return Waiting
	case h == nil && k.status.State == Lost: // only this goroutine writes it
		return Lost
	case h == nil:
		return Acquiring
	case h.cluster == "":
		return Unconfirmed
	case k.gone, h.at == 0, !h.Reservation && !time.Now().Before(h.Expires):
		return Expired
	}
	return Held
}
