package tunnel

import (
	"sync"

	"weft/tunnel/port"
)

// pausing is the state of Pause. Workers wait on it. It is safe for concurrent use.
type pausing struct {
	mu      sync.Mutex
	changed sync.Cond // broadcast when a field below changes; its lock is mu
	paused  bool
	closing bool // workers must end
	running int  // workers that may read
	resting int  // running workers that wait
}

// Pause stops the workers between two batches. When it returns, all packets that were read are written.
// Further packets wait in the kernel's queues. Ports may be attached and detached meanwhile. Pause returns at
// once if the engine is not running.
func (e *Engine) Pause() {
	e.pauseWorkers()
	e.releaseThrottled()
}

func (e *Engine) pauseWorkers() {
	s := &e.pausing
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = true
	e.pausedNow.Store(true)
	for _, w := range e.workers {
		if !s.closing {
			w.poll.wakeup()
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

// begin counts a worker as running until end. The worker calls it before it reads.
func (s *pausing) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running++
}

// end undoes begin. The worker reads no more.
func (s *pausing) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.changed.Broadcast()
}

// rest blocks while the engine is paused. It returns false if the worker must end.
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

// close makes all workers end. The caller wakes them.
func (s *pausing) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.changed.Broadcast()
}

// releaseThrottled removes all throttling: a filter must not stay in force while nobody adjusts it.
func (e *Engine) releaseThrottled() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, a := range e.attached {
		if p, ok := a.port.(port.Throttler); ok && a.fair.Release() {
			if err := p.Throttle(nil); err != nil {
				e.log.Warn("cannot remove the filter: a peer may still be held back", "cause", err)
			}
		}
	}
}
