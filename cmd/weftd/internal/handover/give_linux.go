package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/rights"
)

// Estate is what an old weftd has to give. Its descriptors belong to whoever has it.
type Estate struct {
	Items     []custody.Item
	Stored    custody.Stored
	Claims    map[string]int
	Listeners map[string]int
}

// Close closes the descriptors that are still there.
func (e *Estate) Close() {
	for _, i := range e.Items {
		rights.Close(i.FDs)
	}
	for _, m := range []map[string]int{e.Claims, e.Listeners} {
		for _, fd := range m {
			_ = unix.Close(fd) // a duplicate
		}
		clear(m)
	}
	e.Items = nil
	e.Stored.Close()
}

// Give sends all of e.
func (c *Conn) Give(e *Estate) error {
	for _, i := range e.Items {
		meta, err := json.Marshal(i.Meta)
		if err != nil {
			return err
		}
		if err := c.Send(Message{Word: Item, Name: i.Name, Body: meta, FDs: i.FDs}); err != nil {
			return err
		}
	}
	send := func(w Word, all map[string]int) error {
		for name, fd := range all {
			if err := c.Send(Message{Word: w, Name: name, FDs: []int{fd}}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := errors.Join(send(Claim, e.Claims), send(Listener, e.Listeners)); err != nil {
		return err
	}
	for _, part := range e.Stored.Parts() {
		if err := c.Send(Message{Word: Store, Body: body(part), FDs: part.FDs()}); err != nil {
			return err
		}
	}
	return c.Send(Message{Word: End})
}

// Take receives what Give sends. Beside an error there is nothing to close.
func (c *Conn) Take(until time.Time) (e *Estate, err error) {
	e = &Estate{Claims: map[string]int{}, Listeners: map[string]int{}}
	defer func() {
		if err != nil {
			e.Close()
			e = nil
		}
	}()
	for {
		m, err := c.Receive(until)
		if err != nil {
			return e, err
		}
		one := map[Word]map[string]int{Claim: e.Claims, Listener: e.Listeners}[m.Word]
		switch {
		case m.Word == End:
			return e, nil
		case m.Word == Back:
			return e, &BackError{m.Name}
		case m.Word == Item && len(m.FDs) > 0:
			i := custody.Item{Name: m.Name, FDs: m.FDs}
			if err = json.Unmarshal(m.Body, &i.Meta); err == nil {
				e.Items = append(e.Items, i)
				continue
			}
		case m.Word == Store:
			if err = e.Stored.Add(m.Body, m.FDs); err == nil {
				continue
			}
		case one != nil && len(m.FDs) == 1 && one[m.Name] == 0:
			one[m.Name] = m.FDs[0]
			continue
		}
		rights.Close(m.FDs)
		return e, errors.Join(err, fmt.Errorf("hand-over: %s %q with %d descriptors is not understood", m.Word, m.Name, len(m.FDs)))
	}
}

// sinceBoot is the clock of a Deadline.
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // every kernel since 2.6.39 has it
	}
	return time.Duration(ts.Nano())
}

// SendYours says that the new one may begin to read within d.
func (c *Conn) SendYours(d time.Duration) error {
	return c.Send(Message{Word: Yours, Body: body(Deadline{sinceBoot() + d})})
}

// Over reports whether the time of a Yours is over.
func Over(yours Message) bool {
	var d Deadline
	return json.Unmarshal(yours.Body, &d) != nil || sinceBoot() > d.Boot
}

// SendFlowing says that the new one reads.
func (c *Conn) SendFlowing(r Report) error { return c.Send(Message{Word: Flowing, Body: body(r)}) }

// ReportOf reads what Flowing says. What it lacks is zero.
func ReportOf(flowing Message) (r Report) {
	_ = json.Unmarshal(flowing.Body, &r) // it is shown, and nothing follows from it
	return r
}
