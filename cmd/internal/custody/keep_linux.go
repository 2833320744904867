package custody

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"weft/cmd/internal/rights"
)

// Keep keeps duplicates of fds, which stay the caller's, with meta under name, in the place of what had that name. With an error they
// are not kept now, but are tried again with the next holder: what needs them goes on, and only a restart of weftd would end it.
func (c *Custody) Keep(ctx context.Context, name string, meta []byte, fds []int) error {
	return c.put(ctx, name, meta, fds, false)
}

// Offer is Keep of what is kept only where it will outlive weftd: else nobody is started for it, and that is no fault. It counts as a port.
func (c *Custody) Offer(ctx context.Context, name string, meta []byte, fds []int) error {
	return c.put(ctx, name, meta, fds, true)
}

func (c *Custody) put(ctx context.Context, name string, meta []byte, fds []int, optional bool) error {
	i := Item{Name: name, Meta: slices.Clone(meta), FDs: fds}
	if err := i.check(); err != nil {
		return err
	}
	own, err := rights.Duplicate(fds)
	if err != nil {
		return fmt.Errorf("keep descriptors of %q: %w", name, err)
	}
	i.FDs = own
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed { // whoever keeps things for the next weftd obeys that one by now
		rights.Close(own)
		return nil
	}
	defer c.publish()
	rights.Close(c.items[name].FDs)
	c.items[name] = i
	if delete(c.optional, name); optional {
		c.optional[name] = true
	}
	err = c.keep(ctx, i)
	c.note(name, err)
	return err
}

// note stores why name is not kept, nil if it is.
func (c *Custody) note(name string, err error) {
	if err == nil {
		delete(c.faults, name)
		return
	}
	c.faults[name] = err
}

var errNobody = errors.New("nobody keeps descriptors: there is no control socket beside which a holder could listen, or --holder-timeout is 0")

// endsWithUs says why the holder will end with weftd, "" if it will not as far as is known.
func (c *Custody) endsWithUs() string {
	switch {
	case os.Getpid() == 1:
		return "weftd is the first process of a container, and the kernel ends the holder with it: outside of a container, or with systemd, pods outlive a restart"
	case c.o.Getenv("NOTIFY_SOCKET") != "": // it ends all processes of a unit together, unless KillMode= says otherwise
		return "the service manager keeps no descriptors for weftd, and ends the holder with it: set FileDescriptorStoreMax= and FDSTORE in weftd's unit, as the shipped one does"
	}
	return ""
}

func (c *Custody) keep(ctx context.Context, i Item) error {
	if c.held {
		c.fresh[i.Name] = true
		return nil
	}
	if c.manager != nil && c.manager.most > 0 {
		return c.manager.keep(i)
	}
	if c.optional[i.Name] && (c.socket == "" || c.o.Timeout <= 0 || c.endsWithUs() != "") {
		return nil
	}
	if c.socket == "" || c.o.Timeout <= 0 {
		return errNobody
	}
	if c.session != nil {
		err := c.session.keep(i)
		if no := (*refusedError)(nil); err == nil || errors.As(err, &no) {
			return err
		}
		c.lose(err)
	}
	if c.silent != nil { // whoever attaches a pod does not wait for it: Run does
		return c.silent
	}
	if c.trying != nil { // two would start one each
		return c.afterTrying(ctx, i.Name)
	}
	s, r, err := c.connect(ctx, true)
	if err != nil {
		if errors.Is(err, errSilent) {
			c.lose(err)
		}
		return err
	}
	return c.give(s, r)
}

// afterTrying keeps what has that name once Run has found a holder, or none. mu is held, but not meanwhile.
func (c *Custody) afterTrying(ctx context.Context, name string) error {
	done := c.trying
	c.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	c.mu.Lock()
	i, ok := c.items[name]
	switch {
	case c.closed || !ok: // somebody has it forgotten meanwhile
		return nil
	case ctx.Err() != nil && c.session == nil: // nobody has it
		return ctx.Err()
	}
	return c.keep(ctx, i)
}

// give makes s the session, and gives the holder all items.
func (c *Custody) give(s *session, r Report) error {
	c.adopt(s, r)
	defer c.changed()
	delete(c.faults, "")
	for name := range c.owed {
		if s.forget(name) == nil {
			delete(c.owed, name)
		}
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(c.items)) {
		if c.optional[name] && c.endsWithUs() != "" {
			continue
		}
		err := s.keep(c.items[name])
		if errors.Is(err, errSilent) {
			c.lose(err)
			err = c.silent
		}
		c.note(name, err)
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
