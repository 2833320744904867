package custody

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weft/cmd/internal/rights"
)

// shelf keeps descriptors by their numbers. Only the goroutine of a Custody uses it.
type shelf interface {
	// Store keeps a duplicate of fd as n. A *refusedError says that this one is not kept.
	Store(n uint64, fd int) error
	// Remove drops numbers, also those that the shelf does not have.
	Remove(numbers ...uint64) error
	// Flush returns when all of that is done.
	Flush() error
}

const (
	// stampEvery is how often the index is told that weftd lives.
	stampEvery = 5 * time.Second
	// againFirst and againMost bound the time between attempts of which one failed.
	againFirst, againMost = time.Second, time.Minute
)

var (
	errNobody = errors.New("nobody keeps descriptors: there is no control socket beside which a holder " +
		"could listen, or --holder-timeout is 0")
	errNoIndex = errors.New("nothing can be kept: there is no memory for an index")
)

// refusedError is a shelf's refusal.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return "it is refused: " + e.why }

// keep makes the shelf equal to the items whenever they change, until Close.
func (c *Custody) keep() {
	defer close(c.over)
	select {
	case <-c.begin:
	case <-c.stop:
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	t := time.NewTimer(0)
	defer t.Stop()
	for again := againFirst; ; {
		switch equal := c.settle(ctx); {
		case !equal:
			t.Reset(again)
			again = min(2*again, againMost)
		case len(c.has) > 0:
			t.Reset(stampEvery)
			again = againFirst
		default:
			t.Stop()
			again = againFirst
		}
		select {
		case <-c.stop:
			return
		case <-c.wake:
		case <-t.C:
		}
	}
}

// settle makes the shelf equal once, and says whether it is.
func (c *Custody) settle(ctx context.Context) bool {
	c.mu.Lock()
	change, dead, before := c.changes, c.dead, c.fault
	want := c.wanted()
	c.dead = nil
	c.mu.Unlock()
	rights.Close(dead)
	refused := map[string]error{}
	err := c.equal(ctx, want, refused)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.index != nil {
		c.index.stamp()
		if change != c.written {
			err = c.index.write(c.entries())
		}
		if err == nil {
			c.written = change
		}
	}
	c.fault, c.faults = err, refused
	switch {
	case err != nil && before == nil && c.holder != 0:
		c.o.Logger.Warn("the holder of pods' descriptors is lost; a restart of weftd would now cut pods off; it "+
			"is tried again", "pid", c.holder, "reason", err)
	case err == nil && before != nil:
		c.o.Logger.Info("everything is kept for the next weftd again", "items", len(c.items))
	}
	if c.tried < change {
		c.tried = change
	}
	close(c.told)
	c.told = make(chan struct{})
	return err == nil && len(refused) == 0
}

// wanted are the entries that the shelf is to have, in order of numbers. The caller has the lock.
func (c *Custody) wanted() []entry {
	return slices.DeleteFunc(c.entries(), func(e entry) bool {
		return e.Optional && c.systemd == nil && (!c.mayHold() || c.endsWithUs() != "")
	})
}

// mayHold reports whether there may be a holder.
func (c *Custody) mayHold() bool { return c.socket != "" && c.o.Timeout > 0 }

// equal makes the shelf have want and nothing else. refused has the rest.
func (c *Custody) equal(ctx context.Context, want []entry, refused map[string]error) error {
	s, err := c.shelf(ctx, len(want) > 0)
	if s == nil || err != nil {
		return err
	}
	wanted := map[uint64]bool{0: len(want) > 0}
	for _, e := range want {
		for _, n := range e.Numbers {
			wanted[n] = true
		}
	}
	touched, err := c.remove(s, slices.DeleteFunc(slices.Sorted(maps.Keys(c.has)), func(n uint64) bool {
		return wanted[n]
	}))
	if err != nil {
		return c.failed(err)
	}
	if len(want) > 0 && c.index == nil {
		return errNoIndex
	}
	if len(want) > 0 { // the index comes first: without it nothing can be told from the rest
		want = slices.Insert(want, 0, entry{Numbers: []uint64{0}, fds: []int{c.index.fd()}})
	}
	for _, e := range want {
		stored, err := c.store(s, e)
		touched = touched || stored
		if no := (*refusedError)(nil); errors.As(err, &no) {
			refused[e.Name] = err
			_, err = c.remove(s, e.Numbers)
		}
		if err != nil {
			return c.failed(err)
		}
	}
	if touched || c.fault != nil { // after which nobody knows how far it has come
		err = s.Flush()
	}
	if err == nil && c.former != nil && len(refused) == 0 {
		_, _ = c.former.report(message{Verb: verbEnd}) // its timeout ends it if it does not hear
		c.former.close()
		c.former = nil
	}
	return c.failed(err)
}

// store has s keep what it does not have of e.
func (c *Custody) store(s shelf, e entry) (touched bool, err error) {
	for k, n := range e.Numbers {
		if c.has[n] {
			continue
		}
		if c.systemd != nil {
			c.systemd.used = len(c.has)
		}
		if err := s.Store(n, e.fds[k]); err != nil {
			return touched, err
		}
		touched = true
		c.mu.Lock()
		c.has[n] = true
		c.mu.Unlock()
	}
	return touched, nil
}

// remove has s drop numbers.
func (c *Custody) remove(s shelf, numbers []uint64) (touched bool, err error) {
	if len(numbers) == 0 {
		return false, nil
	}
	if err := s.Remove(numbers...); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range numbers {
		delete(c.has, n)
	}
	return true, nil
}

// failed ends the session with a holder after err.
func (c *Custody) failed(err error) error {
	if err != nil && c.session != nil {
		c.lose()
		if errors.Is(err, errSilent) {
			return fmt.Errorf("%w: see whether process %d is stopped (kill -CONT %d continues it). It is asked again",
				err, c.holder, c.holder)
		}
	}
	return err
}

// lose ends the session. A holder without items ends by itself, and is not missed.
func (c *Custody) lose() {
	c.session.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session = nil; len(c.wanted()) == 0 {
		c.holder = 0
	}
}

// shelf returns the one that is to have the items, nil if none needs to have any.
func (c *Custody) shelf(ctx context.Context, needed bool) (shelf, error) {
	if c.session != nil { // is it there still?
		switch _, err := c.session.report(message{Verb: verbLook}); {
		case err == nil:
			return c.session, nil
		case !errors.Is(err, errOver):
			return nil, c.failed(err)
		}
		c.lose()
	}
	switch {
	case c.systemd != nil:
		return c.systemd, nil
	case !needed && (c.holder == 0 || len(c.has) == 0):
		return nil, nil
	case !c.mayHold():
		return nil, errNobody
	}
	s, r, err := c.connect(ctx, needed)
	if errors.Is(err, errNoHolder) && !needed {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holder, c.has = 0, map[uint64]bool{}
		return nil, nil
	}
	if errors.Is(err, errSilent) {
		err = fmt.Errorf("%w: see whether it is stopped (pgrep -af 'weftd holder'; kill -CONT continues one). It "+
			"is asked again", err)
	}
	if err != nil {
		return nil, err
	}
	fds, err := s.take() // its answer says what it has
	rights.Close(slices.Collect(maps.Values(fds)))
	numbers := slices.Collect(maps.Keys(fds))
	if err == nil && r.PID != c.holder { // its numbers are not ours
		err = s.Remove(numbers...)
		numbers = nil
	}
	if err != nil {
		s.close()
		return nil, err
	}
	if c.holder != 0 && r.PID != c.holder {
		c.o.Logger.Warn("the holder of pods' descriptors had ended: another one keeps them", "before", c.holder,
			"pid", r.PID)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.holder, c.has = s, r.PID, map[uint64]bool{}
	for _, n := range numbers {
		c.has[n] = true
	}
	return s, nil
}
