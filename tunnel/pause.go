package tunnel

import (
	"sync"

	"weft/tunnel/port"
)

// pausing is where workers wait while the engine is paused. It is safe for concurrent use.
type pausing struct {
	mu      sync.Mutex
	changed sync.Cond // of what follows; mu is its lock
	paused  bool
	closing bool // workers shall end
	running int  // workers that may read
	resting int  // of them, those that wait here
}

// Pause stops the workers between two batches. When it returns, everything that was read is written, nothing
// is read, and arriving packets wait in the kernel's queues. Ports may be attached and detached meanwhile.
// Pause returns at once if the engine does not run.
func (e *Engine) Pause() {
	e.rest()
	e.releaseHeld()
}

func (e *Engine) rest() {
	s := &e.pausing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	e.pausedNow.Store(true)
	for _, w := range e.workers {
		if !s.closing {
			w.poll.ring()
		}
	}
	for s.resting < s.running && s.paused && !s.closing {
		s.changed.Wait()
	}
}

// Resume ends Pause, or Config.Paused.
func (e *Engine) Resume() {
	s := &e.pausing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = false
	e.pausedNow.Store(false)
	s.changed.Broadcast()
}

// begin is called by a worker before it reads anything. It counts until end.
func (s *pausing) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

// end is called by a worker that reads no more.
func (s *pausing) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.changed.Broadcast()
}

// rest waits while the engine is paused. It is false if the worker is to end.
func (s *pausing) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resting++
	s.changed.Broadcast()
	for s.paused && !s.closing {
		s.changed.Wait()
	}
	s.resting--
	return !s.closing
}

// close has all workers end. The caller wakes them.
func (s *pausing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.changed.Broadcast()
}

// releaseHeld lets everything into the queues: a filter that holds a peer back must not outlive who tends it.
func (e *Engine) releaseHeld() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.attached {
		if p, ok := a.port.(port.Holding); ok && a.fair.Release() {
			if err := p.Hold(nil); err != nil {
				e.log.Warn("a peer may still be held back", "cause", err)
			}
		}
	}
}
