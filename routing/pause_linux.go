package routing

import (
	"time"

	"weft/routing/internal/kernel"
)

// disinherit closes what was to be inherited.
func (c BackendConfig) disinherit() {
	for _, k := range c.Inherited {
		k.Close()
	}
	clear(c.Inherited)
}

// beginAnyway is how long a data plane that took ports up waits for a set that it can carry by. Queues hold
// little more, and pods of this node that talk to each other need none.
const beginAnyway = 3 * time.Second

func (c *Node) beginAnyway() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.halted && !c.ended {
		c.plane.Begin(true)
	}
}

// Pause stops the data plane between two batches, and changes nothing in the kernel until Resume. When it
// returns, all that was read is on its way, and what arrives waits in the queues, so that the ports can be
// left to another program without loss. Without a data plane there is nothing to do: the kernel goes on, and
// the sessions of WireGuard in user space end with the process.
func (c *Node) Pause() {
	c.mu.Lock() // a reconcile ends first
	defer c.mu.Unlock()
	if c.plane != nil {
		c.halted = true
		c.plane.Pause()
	}
}

// Resume goes on after Pause.
func (c *Node) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plane != nil {
		c.halted = false
		c.plane.Resume()
		c.nudge(kernel.ChangedAll)
	}
}

// Abandon has Run, when it ends, undo nothing, since others have the ports: BackendConfig.Keep is not told
// that they are closed. Nothing changes until then.
func (c *Node) Abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plane != nil {
		c.plane.Abandon()
	}
}
