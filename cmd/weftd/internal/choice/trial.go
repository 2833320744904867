package choice

import (
	"time"

	"weft/lease"
)

// TrialFor is how long a new configuration has to come into place, with a lease, before the last good one
// comes back, since pods may have no network meanwhile. FaultFor is the same for one that has its lease and
// whose backend reports an error.
const (
	TrialFor = 30 * time.Second
	FaultFor = 3 * time.Second
)

// trial is that time for the configuration in use. It is on only if there is a last good one.
type trial struct {
	on            bool
	began, faulty time.Time
}

// failed reports whether the time is over. A configuration that came into place is on trial no more.
func (t *trial) failed(in Input) bool {
	switch {
	case in.InPlace:
		t.on = false
	case in.Lease != lease.Held || !in.Fault:
		t.faulty = time.Time{}
	case t.faulty.IsZero():
		t.faulty = in.Now
	}
	return t.on && (in.Now.Sub(t.began) > TrialFor || !t.faulty.IsZero() && in.Now.Sub(t.faulty) > FaultFor)
}

// retryFirst and retryMost bound the wait before a configuration whose backend could not be made is tried
// again. The attempt does not disturb the one in use.
const retryFirst, retryMost = 5 * time.Second, 5 * time.Minute

// refusal is the last configuration that was tried and did not work.
type refusal struct {
	raw   string
	why   error
	wait  time.Duration // before it is tried again; 0 for never
	until time.Time
}

// add notes that raw does not work. again says that it may be tried again.
func (r *refusal) add(raw []byte, why error, again bool, now time.Time) {
	next := refusal{raw: string(raw), why: why}
	if again {
		next.wait = retryFirst
		if r.raw == next.raw {
			next.wait = min(max(2*r.wait, retryFirst), retryMost)
		}
		next.until = now.Add(next.wait)
	}
	*r = next
}

// now returns why raw is not tried now; nil if it may be.
func (r *refusal) now(raw []byte, now time.Time) error {
	if r.why != nil && r.raw == string(raw) && (r.wait == 0 || now.Before(r.until)) {
		return r.why
	}
	return nil
}
