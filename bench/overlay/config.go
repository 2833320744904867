package overlay

import (
	"errors"

	"weft/bench/plan"
	"weft/test/lab"
)

// Config says which rungs are measured, and how.
type Config struct {
	plan.Config
	// Rungs are the names of those to measure; all by default.
	Rungs []string
	// Wires are those of lab.Wires to measure on, one after the other.
	Wires []string
	// Weftd is the daemon; by default the one beside this program, then in $PATH.
	Weftd string
}

// Check returns nil if c can be measured, else an error with every fault.
func (c Config) Check() error {
	_, err := choose(c.Rungs)
	faults := []error{err, c.Config.Check()}
	for _, w := range c.Wires {
		faults = append(faults, lab.Choose("wire", w, lab.Wires()))
	}
	return errors.Join(faults...)
}
