// Package choice decides which network configuration weftd serves. It neither reads nor writes anything: the
// caller says what it saw (Input), does what Next answers (Step), and calls Next again.
//
//	start ──last good, else the source's──> serve ──each second──> keep
//	                     ^                    │
//	                     └── last good <── trial failed, ended, or not opened
//
// The last good configuration is the last that was in place with a lease; its record is the cache. Until the
// source has once had the configuration in use, weftd opens each other one that the source has, as soon as it
// works. Afterwards only a reload or a restart does that.
package choice

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"weft/lease"
	"weft/routing"
)

// Network is a network configuration.
type Network struct {
	routing.Network
	// LastGood says that it was in place at an earlier time, so that no other one is better known.
	LastGood bool
}

// Offer is the network configuration that the source has.
type Offer struct {
	// Known is false as long as the source has not answered.
	Known bool
	// Network is valid if Fault is nil; Raw is its text even if not, nil for none.
	Network
	// Fault is what is wrong with it, or that there is none, or why the source did not answer.
	Fault error
}

// BackendError is the error of a network configuration whose backend could not be made. Any other error at
// that time is this host's, and no other configuration would help.
type BackendError struct{ Err error }

func (e *BackendError) Error() string { return e.Err.Error() }
func (e *BackendError) Unwrap() error { return e.Err }

// Action is what the caller does next.
type Action uint8

// The actions. The caller first waits for Step.Again.
const (
	// Wait asks the source; the next Input has its answer as Offer.
	Wait Action = iota
	// Open makes Step.Network ready beside the one in use, and then serves it in its place. If it cannot be
	// opened, the next Input has OpenErr, and the one in use goes on.
	Open
	// GoBack ends the one in use, if there is one, and serves the last good one.
	GoBack
	// Keep serves the one in use.
	Keep
	// Fail ends weftd with Step.Why.
	Fail
)

// Input is what the caller saw.
type Input struct {
	Now   time.Time
	Offer Offer
	// LastGood is the last good configuration, nil if there is none.
	LastGood *Network
	// Running is the configuration in use, nil if there is none. The pointer stays the same while it is.
	Running *Network
	// OpenErr is why the network of the last Open or GoBack could not be opened.
	OpenErr error
	// Ended is why Running ended by itself. Blameless says that its configuration may not be the cause.
	Ended     error
	Blameless bool
	// Reload says that an operator asks for Offer.
	Reload bool

	// These describe Running. Lease and Own are the state of its lease, and the node's subnets. InPlace says
	// that it has been in place with a lease. Unready lists why it is not, and Fault says that its backend
	// reports an error. Silent says that the store does not answer.
	Lease   lease.State
	Own     lease.Subnets
	InPlace bool
	Unready []string
	Fault   bool
	Silent  bool
}

// Step is what follows.
type Step struct {
	Do    Action
	Again time.Duration // the caller waits this long before it does it
	// Network is what to open; with GoBack it is the last good one.
	Network *Network
	// Why is the reason to wait, to go back or to fail, and the answer to a reload that changes nothing.
	Why error
	// View, if not nil, is what there is to show of the source's configuration.
	View *View
}

// View says how the source's configuration differs from the one in use; it is zero if it does not.
type View struct {
	Other []byte // its text; nil for none
	Fault error  // why it cannot be used; nil if it could
	// LastGood says that the one in use is the last good one, in place of the source's. Restart says that only a
	// restart or a reload opens the source's. Stays says that a restart does not either, unless --renumber is
	// given.
	LastGood, Restart, Stays bool
}

// These bound the waits. A backend that cannot be made is tried again after openAgain while nothing runs. The
// source is asked again after askFirst to askMost. The configuration in use is compared with the source's
// each lookEvery, and each lookSoon until the source was heard, since readiness waits for that.
const (
	openAgain         = 5 * time.Second
	askFirst, askMost = 100 * time.Millisecond, 2 * time.Second
	lookEvery         = time.Second
	lookSoon          = 20 * time.Millisecond
)

// Choice is the state between two steps. It is for one goroutine.
type Choice struct {
	// Renumber lets the node take up a network that does not contain its subnet. Assigned says that the cluster
	// assigns subnets, and the configuration does not.
	Renumber, Assigned bool

	begun   bool
	ask     time.Duration // the last wait for the source
	trying  *Network      // what was last to be opened
	instead bool          // the last good one cannot be opened, and the source was asked for another one

	running  *Network
	compared bool // with an answer of the source
	matched  bool // the source has had the one in use
	trial    trial

	refused refusal
}

// Next returns what follows from in.
func (c *Choice) Next(in Input) Step {
	switch {
	case in.Running != nil && in.Ended != nil:
		return c.ended(in)
	case in.Running != nil && in.Reload:
		return c.reload(in)
	case in.Running != nil:
		return c.look(in)
	case in.OpenErr != nil:
		return c.notOpened(in)
	}
	return c.begin(in)
}

// begin finds something to serve.
func (c *Choice) begin(in Input) Step {
	o, first := in.Offer, !c.begun
	usable := o.Known && o.Fault == nil
	c.begun = true
	switch {
	case first && in.LastGood != nil:
		return c.goBack(in, nil)
	case c.instead:
		c.instead = false
		if usable && !o.Equal(c.trying.NetworkConfig) && c.refused.now(o.Raw, in.Now) == nil {
			return c.open(o)
		}
		if in.LastGood == nil {
			return Step{Do: Wait, Again: openAgain}
		}
		s := c.goBack(in, nil)
		s.Again = openAgain
		return s
	case usable:
		return c.open(o)
	case o.Fault == nil: // it was not asked yet
		return Step{Do: Wait}
	}
	c.ask = min(max(2*c.ask, askFirst), askMost)
	return Step{Do: Wait, Again: c.ask, Why: o.Fault}
}

func (c *Choice) open(o Offer) Step {
	c.trying, c.ask = &Network{Network: o.Network.Network}, 0
	return Step{Do: Open, Network: c.trying}
}

func (c *Choice) goBack(in Input, why error) Step {
	good := *in.LastGood
	good.LastGood = true
	c.trying, c.ask = &good, 0
	return Step{Do: GoBack, Network: c.trying, Why: why}
}

// notOpened follows an attempt to open a network while none ran.
func (c *Choice) notOpened(in Input) Step {
	backend := (*BackendError)(nil)
	configs := errors.As(in.OpenErr, &backend)
	switch {
	case !c.trying.LastGood && in.LastGood != nil:
		c.refused.add(c.trying.Raw, in.OpenErr, true, in.Now)
		return c.goBack(in, in.OpenErr)
	case !configs:
		return Step{Do: Fail, Why: in.OpenErr}
	case c.trying.LastGood:
		c.instead = true
		return Step{Do: Wait, Why: fmt.Errorf("config: the last good one: the backend does not start: %w",
			in.OpenErr)}
	}
	return Step{Do: Wait, Again: openAgain, Why: fmt.Errorf("config: the backend does not start: %w",
		in.OpenErr)}
}

// ended follows the end of the network in use.
func (c *Choice) ended(in Input) Step {
	if in.Running.LastGood || in.LastGood == nil {
		return Step{Do: Fail, Why: in.Ended}
	}
	if !in.Blameless {
		c.refused.add(in.Running.Raw, in.Ended, false, in.Now)
	}
	return c.goBack(in, in.Ended)
}

// look compares the network in use with the source's.
func (c *Choice) look(in Input) Step {
	if c.running != in.Running {
		c.running, c.compared, c.matched = in.Running, false, false
		c.trial = trial{on: !in.InPlace && in.LastGood != nil, began: in.Now}
	}
	o, s := in.Offer, Step{Do: Keep, Again: lookEvery}
	v := View{Other: o.Raw, Fault: o.Fault, LastGood: !c.matched && in.InPlace}
	switch {
	case !o.Known || o.Fault != nil:
	case o.Equal(in.Running.NetworkConfig):
		v, c.matched = View{}, true
	case c.matched:
		v.Restart, v.Stays = true, c.unfit(in, o.NetworkConfig) != nil
	default:
		if in.OpenErr != nil {
			c.refused.add(o.Raw, fmt.Errorf("it cannot be served here, and is tried again: %w", in.OpenErr),
				true, in.Now)
		}
		if v.Fault = c.unfit(in, o.NetworkConfig); v.Fault == nil {
			v.Fault = c.refused.now(o.Raw, in.Now)
		}
		if v.Fault == nil {
			return c.open(o)
		}
	}
	if o.Known {
		c.compared, s.View = true, &v
	}
	if !c.compared {
		s.Again = lookSoon
	}
	if c.trial.failed(in) {
		why := fmt.Errorf("it was tried, and did not come into place; a restart tries it again: %s",
			strings.Join(in.Unready, "; "))
		in.Ended, in.Blameless = why, in.Silent
		return c.ended(in)
	}
	return s
}

// reload opens the source's network on an operator's word, unless the node's pods would lose their addresses.
func (c *Choice) reload(in Input) Step {
	o, s := in.Offer, Step{Do: Keep}
	switch {
	case o.Fault != nil:
		s.Why = o.Fault
	case o.Equal(in.Running.NetworkConfig):
	case in.OpenErr != nil:
		s.Why = fmt.Errorf("it cannot be served here: %w", in.OpenErr)
	default:
		if s.Why = c.unfit(in, o.NetworkConfig); s.Why == nil {
			s.Why = c.moves(in, o.NetworkConfig)
		}
		if s.Why == nil {
			return c.open(o)
		}
	}
	return s
}

// unfit says why the node does not take up n: its pods have addresses outside it. It is nil if nothing speaks
// against n.
func (c *Choice) unfit(in Input, n lease.NetworkConfig) error {
	switch {
	case !in.InPlace || c.Renumber:
		return nil
	case c.Assigned && (in.Lease == lease.Expired || in.Lease == lease.Lost):
		return nil // the cluster gives the node another subnet
	}
	if err := n.Contains(in.Own); err != nil {
		return fmt.Errorf("%w; to renumber the node all the same, restart weftd with --renumber", err)
	}
	return nil
}

// moves says that the node would get another subnet of n, which a restart accepts and a reload does not.
func (c *Choice) moves(in Input, n lease.NetworkConfig) error {
	if c.Assigned {
		return nil
	}
	if why := n.Unfit(in.Own); why != "" {
		return fmt.Errorf(
			"this node would get another subnet, which cuts its pods off (%s): that takes a restart: "+
				"weft upgrade, or systemctl restart weftd", why)
	}
	return nil
}

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
