package tunnel

import "fmt"

// Turn moves one batch from each queue of a port in the caller's goroutine, and reports whether there was
// any. It is for simulations that run an Engine without Run.
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
