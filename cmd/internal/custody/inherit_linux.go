package custody

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"weft/cmd/internal/rights"
)

// Inherited is what one program leaves to the next. Its descriptors belong to whoever has it.
type Inherited struct {
	Items  []Item
	Stored Stored
}

// Stored says what the service manager's store has, which it tells only a process that it starts.
type Stored struct {
	turn  uint64
	used  int
	items map[string]stored
	alive int // -1 for none
	any   bool
}

// Part is a part of a Stored, of a size that can be sent at once: the time when weftd was last alive, or one Item. Its JSON form is all but the descriptors.
type Part struct {
	Turn  uint64   `json:"turn"`
	Used  int      `json:"used"`
	Item  string   `json:"item,omitempty"`
	Label string   `json:"label,omitempty"`
	At    []string `json:"at,omitempty"`
	fds   []int
}

// FDs are the descriptors beside the part, which stay whose they are.
func (p Part) FDs() []int { return p.fds }

// Parts returns s in parts; none if no service manager keeps anything.
func (s *Stored) Parts() (out []Part) {
	if !s.any {
		return nil
	}
	first := Part{Turn: s.turn, Used: s.used}
	if s.alive >= 0 {
		first.fds = []int{s.alive}
	}
	out = append(out, first)
	for _, name := range slices.Sorted(maps.Keys(s.items)) {
		i := s.items[name]
		out = append(out, Part{Turn: s.turn, Used: s.used, Item: name, Label: i.label, At: i.at, fds: i.fds})
	}
	return out
}

// Add adds a part that was received. It takes fds over, but not beside an error.
func (s *Stored) Add(part []byte, fds []int) error {
	var p Part
	if err := json.Unmarshal(part, &p); err != nil {
		return err
	}
	first := !s.any
	_, twice := s.items[p.Item]
	if first != (p.Item == "") || first && len(fds) > 1 || twice || !first && (p.Label == "" || len(p.At) == 0 || len(fds) > len(p.At)) {
		return errMalformed
	}
	if first {
		*s = Stored{items: map[string]stored{}, alive: -1, any: true}
		if len(fds) == 1 {
			s.alive = fds[0]
		}
	} else {
		s.items[p.Item] = stored{label: p.Label, at: p.At, fds: fds}
	}
	s.turn, s.used = p.Turn, p.Used
	return nil
}

// Close closes the descriptors that s has.
func (s *Stored) Close() {
	for _, i := range s.items {
		rights.Close(i.fds)
	}
	if s.any && s.alive >= 0 {
		rights.Close([]int{s.alive})
	}
	*s = Stored{}
}

// Bequeath returns duplicates of all that is kept, for the program that takes this one's place.
func (c *Custody) Bequeath() (h Inherited, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.items)) {
		i := c.items[name]
		if i.FDs, err = rights.Duplicate(i.FDs); err != nil {
			break
		}
		h.Items = append(h.Items, i)
	}
	if m := c.manager; m != nil && err == nil {
		h.Stored = Stored{turn: m.turn, used: m.used, items: map[string]stored{}, alive: -1, any: true}
		for name, s := range m.stored {
			h.Stored.items[name] = s.dup()
		}
		if m.alive >= 0 {
			var alive []int
			if alive, err = rights.Duplicate([]int{m.alive}); err == nil {
				h.Stored.alive = alive[0]
			}
		}
	}
	if err != nil {
		for _, i := range h.Items {
			rights.Close(i.FDs)
		}
		h.Stored.Close()
		return Inherited{}, err
	}
	return h, nil
}

// inherit takes up what the program before left, which has read until a moment ago.
func (c *Custody) inherit(h Inherited) {
	for _, i := range c.former {
		rights.Close(i.FDs)
	}
	c.former, c.away, c.held, c.fresh = h.Items, 0, true, map[string]bool{}
	if m := c.manager; m != nil && h.Stored.any {
		m.close()
		m.turn, m.used, m.stored, m.alive = h.Stored.turn, h.Stored.used, h.Stored.items, h.Stored.alive
		h.Stored = Stored{}
	}
	h.Stored.Close()
}

// Begin tells who keeps descriptors what has become another since everything was inherited. It does nothing if nothing was.
func (c *Custody) Begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.held {
		return nil
	}
	c.held = false
	defer c.publish()
	fresh := slices.Sorted(maps.Keys(c.fresh))
	c.fresh = nil
	var faults []error
	if (c.manager == nil || c.manager.most == 0) && c.socket != "" && c.o.Timeout > 0 {
		s, r, err := c.connect(ctx, false)
		if errors.Is(err, errNoHolder) { // there was nobody, or nobody is left: everything is told
			fresh, err = slices.Sorted(maps.Keys(c.items)), nil
		}
		if err != nil {
			c.faults[""] = err
			return err
		}
		if s != nil {
			c.adopt(s, r)
		}
	}
	for _, name := range fresh {
		i, ok := c.items[name]
		if !ok {
			c.unkeep(name)
			continue
		}
		err := c.keep(ctx, i)
		c.note(name, err)
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// ForgetAll forgets what is kept under names that begin with prefix.
func (c *Custody) ForgetAll(prefix string) {
	c.mu.Lock()
	var names []string
	for name := range c.items {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	c.mu.Unlock()
	for _, name := range names {
		c.Forget(name)
	}
}
