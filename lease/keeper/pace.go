package keeper

import (
	"math/rand/v2"
	"time"

	"weft/lease"
)

const (
	// backoffFirst and backoffMost bound the wait after an error.
	backoffFirst = time.Second
	backoffMost  = time.Minute
	// raceWait is the unit of the wait after a lost race, which another try settles at once.
	raceWait = 20 * time.Millisecond
	// jitterMost is how much earlier than asked a renewal may come.
	jitterMost = 10 * time.Minute
	// longestSleep bounds a timer, because timers stand still while a machine sleeps.
	longestSleep = 5 * time.Minute
)

// raceBackoff returns the wait after losing a race for the n-th time in a row.
func raceBackoff(n int, rng *rand.Rand) time.Duration {
	return draw(rng, raceWait*time.Duration(min(n, 10)))
}

// renewAt is when to renew a record: margin before it expires, or a little
// earlier, since all nodes of a rack may have started together.
func renewAt(expires time.Time, margin time.Duration, rng *rand.Rand) time.Time {
	return expires.Add(-margin - draw(rng, min(jitterMost, (lease.TTL-margin)/10)+1))
}

// draw returns a duration from 0 to below d, which is positive.
func draw(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
