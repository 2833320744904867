package leasetest

import (
	"context"
	"slices"
	"time"

	"weft/lease"
)

// letter is a message with its end. The n-th of the store has number n.
type letter struct {
	value   []byte
	number  int
	expires time.Time
}

// Tell implements lease.Store.
func (s *Store) Tell(ctx context.Context, m lease.Message) error {
	value, err := lease.EncodeMessage(m)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.answer(ctx); err != nil {
		return err
	}
	if s.mail == nil {
		s.mail = map[string]map[string]letter{}
	}
	if s.mail[m.To] == nil {
		s.mail[m.To] = map[string]letter{}
	}
	s.letters++
	s.mail[m.To][m.From] = letter{value, s.letters, time.Now().Add(lease.MessageTTL)}
	s.touch()
	return nil
}

// Listen implements lease.Store.
func (s *Store) Listen(ctx context.Context, node string, told func(lease.Message)) error {
	seen := 0
	for {
		s.mu.Lock()
		wake := s.changed
		var fresh []letter
		for _, l := range s.mail[node] {
			if l.number > seen && !s.down && time.Now().Before(l.expires) {
				fresh = append(fresh, l)
			}
		}
		s.mu.Unlock()
		slices.SortFunc(fresh, func(a, b letter) int { return a.number - b.number })
		for _, l := range fresh {
			seen = l.number
			if m, err := lease.DecodeMessage(node, l.value); err == nil {
				told(m)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// Told returns how many messages were left so far.
func (s *Store) Told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.letters
}
