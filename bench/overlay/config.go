package overlay

import (
	"errors"
	"slices"

	"weft/bench/plan"
	"weft/test/lab"
)

// Config says which rungs are measured, and how.
type Config struct {
	plan.Config
	// Rungs are the names of those to measure; all by default.
	Rungs []string
	// Wires are the names of the lab.WireKinds to measure on, one after the other; lab.WireFull by default.
	Wires []string
	// Weftd is the daemon; by default the one beside this program, then in $PATH.
	Weftd string
}

// Check returns nil if c can be measured, else an error with every fault.
func (c Config) Check() error {
	_, err := choose(c.Rungs)
	_, wrong := c.wires()
	return errors.Join(err, wrong, c.Config.Check())
}

// wires returns the kinds that c.Wires names, each once.
func (c Config) wires() (kinds []lab.WireKind, err error) {
	for _, name := range c.Wires {
		k, wrong := lab.ParseWireKind(name)
		if err = errors.Join(err, wrong); wrong == nil && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		kinds = []lab.WireKind{lab.WireFull}
	}
	return kinds, err
}
