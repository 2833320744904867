package tunnel

import "fmt"

// Turn reads one batch from a port, decides and writes it, in the caller's goroutine. It reports whether
// there was a batch. It is for an Engine without Run, in a simulation of a cluster in one goroutine.
func (e *Engine) Turn(id PortID) (moved bool, err error) {
	e.mu.Lock()
	a := e.attached[id]
	e.mu.Unlock()
	if a == nil {
		return false, fmt.Errorf("turn of port %d: there is no such port", id)
	}
	for _, q := range a.queues {
		w := q.worker
		if w.serve(q.id, false, e.now()) {
			moved = true
		}
		w.batch = batch{}
	}
	return moved, nil
}
