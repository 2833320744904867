package sim

import (
	"fmt"
	"strings"
	"time"

	"weft/tunnel/port"
)

// Turn is a thing in a node's life that is to meet every other one.
type Turn uint8

// The turns.
const (
	ToAcquire Turn = iota
	ToRenew
	ToTakeOver
	ToRelease
	ToClone
	ToCutOff
	ToWake
	ToMove        // to another address
	ToReconfigure // the network is another one
	turns
)

func (t Turn) String() string {
	return [...]string{"acquire", "renew", "take over", "release", "clone", "cut off", "wake up", "move",
		"reconfigure"}[t]
}

// Seen counts how often two turns met: the second within near of the first, in one cluster.
type Seen struct {
	Pairs [turns][turns]int
	Kinds [allKinds]int // how often each thing happened
	Steps int
	rings []*port.Ring // of data planes that have ended: making them anew is a large part of a short run
	last  [turns]time.Duration
	been  [turns]bool
}

// near is how close two turns are that meet: as long as a contest takes.
const near = 10 * time.Second

func (s *Seen) begin() { s.been = [turns]bool{} }

// came notes a turn of m.
func (c *Cluster) came(t Turn, m *machine) {
	s := c.seen
	for before := range turns {
		if s.been[before] && c.now <= s.last[before]+near {
			s.Pairs[before][t]++
		}
	}
	s.been[t], s.last[t] = true, c.now
	c.log("m%d: %s", m.index, t)
}

// ring is a ring for a data plane.
func (s *Seen) ring() *port.Ring {
	if n := len(s.rings); n > 0 {
		r := s.rings[n-1]
		s.rings = s.rings[:n-1]
		return r
	}
	return port.NewRing()
}

// Never lists the pairs that did not meet.
func (s *Seen) Never() (never []string) {
	for a := range turns {
		for b := range turns {
			if s.Pairs[a][b] == 0 {
				never = append(never, fmt.Sprintf("%s, then %s", a, b))
			}
		}
	}
	return never
}

// Without lists those of kinds that never happened.
func (s *Seen) Without(kinds []Kind) (never []Kind) {
	for _, k := range kinds {
		if s.Kinds[k] == 0 {
			never = append(never, k)
		}
	}
	return never
}

// Add adds what another run has seen.
func (s *Seen) Add(t *Seen) {
	s.Steps += t.Steps
	for k := range s.Kinds {
		s.Kinds[k] += t.Kinds[k]
	}
	for a := range turns {
		for b := range turns {
			s.Pairs[a][b] += t.Pairs[a][b]
		}
	}
}

// String is a table of how often what met what.
func (s *Seen) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-12s", "")
	for t := range turns {
		fmt.Fprintf(&b, "%12s", t)
	}
	for a := range turns {
		fmt.Fprintf(&b, "\n%-12s", a)
		for t := range turns {
			fmt.Fprintf(&b, "%12d", s.Pairs[a][t])
		}
	}
	return b.String()
}
