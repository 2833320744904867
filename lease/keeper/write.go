package keeper

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"weft/lease"
)

// callTimeout bounds one call of the store. A write takes up to three requests, each of some seconds at a
// slow store.
const callTimeout = 15 * time.Second

// write is a record on its way to the store.
type write struct {
	holding *holding
	attrs   lease.Attrs
	ttl     time.Duration
	began   time.Time // the store starts to count later than this
}

// writing is the operation that writes h with what we say of ourselves. If old is in the store and has
// other subnets, h takes its place.
func (c *Core) writing(h *holding, old lease.Record) (Operation, write) {
	w := write{holding: h, attrs: c.Local.Attrs, ttl: lease.TTL, began: c.Now}
	if h.Reservation {
		w.ttl = 0
	}
	if old.Revision != 0 && old.Subnets != h.Subnets {
		return ReplaceRecord{old.Subnets, old.Revision, h.Subnets, w.attrs, w.ttl}, w
	}
	return WriteRecord{h.Subnets, w.attrs, w.ttl, h.at}, w
}

// wrote notes what became of a write, in its holding.
func (c *Core) wrote(w write, r Result) error {
	h := w.holding
	switch {
	case errors.Is(r.Err, lease.ErrConflict):
		c.duties.add(dutyRead)
		return fmt.Errorf("write %s at revision %d: %w", h.Subnets, h.at, r.Err)
	case errors.Is(r.Err, lease.ErrRefused):
		c.duties.add(dutyRead)
		c.cleared = nil // until the store takes writes, a silent owner may be back
		return fmt.Errorf("write %s: %w", h.Subnets, r.Err)
	case r.Err != nil:
		// It may have been written all the same. Remember it in the record that we
		// hold, so that it is not taken for another's.
		c.duties.add(dutyRead)
		if held := c.own.held; held != nil && held.Subnets == h.Subnets {
			held.unsure = unsure(held.unsure, w.attrs)
		}
		return fmt.Errorf("write %s: %w", h.Subnets, r.Err)
	}
	var expires time.Time
	if !h.Reservation {
		expires = w.began.Add(w.ttl)
	}
	c.own.wrote(h, w.attrs, r.Revision, expires)
	// A store that says later that it is not as far has gone back, also if it is as far as its last snapshot.
	c.store.revision = max(c.store.revision, r.Revision)
	c.Peers.Heard(r.Revision)
	c.storeAnswered()
	return nil
}

// unsureMost bounds what is remembered of writes whose outcome is not known: each is another state of ours,
// such as an address.
const unsureMost = 16

// unsure is l, which is not used any more, with a at its end. The oldest of too many is forgotten.
func unsure(l []lease.Attrs, a lease.Attrs) []lease.Attrs {
	// a store that takes nothing for hours has the same written again and again
	l = append(slices.DeleteFunc(l, a.Equal), a)
	return slices.Delete(l, 0, max(0, len(l)-unsureMost))
}

// schedule sets when the held record is renewed.
func (c *Core) schedule() {
	c.own.renew = time.Time{}
	if !c.own.held.Reservation {
		c.own.renew = renewAt(c.own.held.Expires, c.o.RenewMargin, c.Rand)
	}
}
