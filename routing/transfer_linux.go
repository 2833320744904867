package routing

import (
	"time"

	"weft/routing/internal/kernel"
)

var _ Transferable = (*carrier)(nil)

// disinherit closes what was to be inherited.
func (c *BackendConfig) disinherit() {
	for _, k := range c.Inherited {
		k.Close()
	}
	clear(c.Inherited)
}

// beginAnyway is how long a data plane that took ports up waits for a set that it can carry by. Queues hold little more, and pods of this node
// that talk to each other need none.
const beginAnyway = 3 * time.Second

func (c *controller) beginAnyway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.halted && !c.ended {
		c.plane.Begin(true)
	}
}

// Pause implements Transferable.
func (c *carrier) Pause() {
	c.mu.Lock() // a reconcile ends first
	defer c.mu.Unlock()
	c.halted = true
	c.plane.Pause()
}

// Resume implements Transferable.
func (c *carrier) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.halted = false
	c.plane.Resume()
	c.nudge(kernel.ChangedAll)
}

// Abandon implements Transferable.
func (c *carrier) Abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plane.Abandon()
}
