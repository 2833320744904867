package tunnel

import (
	"time"
)

// Who reads an inner queue first is a guess of its role (leastLoaded). What then comes from it is not known before: on a node with a worker for each
// direction, two pods that talk to each other would keep one worker busy with both directions, and leave the other idle. So while there is
// traffic, an inner queue is now and then given to the worker that has least to do.

const (
	// callWork and byteShift are what a queue's packets cost its worker, roughly: the nanoseconds of a system call that moves one, and
	// the power of two of bytes that cost one more. Only sums of them are compared, and by far; no clock is read for it.
	callWork  = 2000
	byteShift = 2
	// A worker has much to do if it did 1/muchWork of what the time allows, and a queue is given away only if the busiest of the two workers
	// has at least 1/lessWork less to do for it.
	muchWork = 5
	lessWork = 4
	// movedLately is for how long a queue stays where it was given to.
	movedLately = time.Second
)

// worked notes what a batch of q cost. Only q's worker calls it.
func (w *worker) worked(q *queue) {
	cost := uint64(w.ring.reads+w.ring.writes)*callWork + uint64(w.ring.used)>>byteShift
	q.work.Store(q.work.Load() + cost)
}

// balance gives one inner queue to another worker if that shares the work out better. It looks at what was done since it was last called, some
// time ago; act is false if that was too long ago to say anything.
func (e *Engine) balance(since time.Duration, act bool) {
	if len(e.workers) < 2 {
		return
	}
	if a, err := e.share(since, act); err != nil {
		e.workers[0].lose(a, err)
	}
}

// share is balance. With an error the port that it is about can be read no more.
func (e *Engine) share(since time.Duration, act bool) (*attached, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		return nil, nil
	}
	clear(e.loads)
	for _, a := range e.attached {
		for _, q := range a.queues {
			work := q.work.Load()
			q.lately, q.before = work-q.before, work
			e.loads[q.worker.Load().index] += q.lately
		}
	}
	from, to := 0, 0
	for i, load := range e.loads {
		if load > e.loads[from] {
			from = i
		}
		if load < e.loads[to] {
			to = i
		}
	}
	if !act || e.loads[from] < uint64(since)/muchWork {
		return nil, nil
	}
	q := e.movable(from, to)
	if q == nil {
		return nil, nil
	}
	q.moved = e.now()
	return q.of, e.move(q, e.workers[to])
}

// movable is the queue of worker from that worker to had best read; nil if there is none worth it.
func (e *Engine) movable(from, to int) (best *queue) {
	now := e.now()
	limit := e.loads[from] - e.loads[from]/lessWork // what the busiest of the two would have to do
	for _, a := range e.attached {
		if a.role == RoleUnderlay || len(a.queues) > 1 || a.lost.Load() {
			continue // each worker has one of those already, or they are the other direction
		}
		q := a.queues[0]
		if q.lately == 0 || q.worker.Load().index != from || now-q.moved < int64(movedLately) {
			continue
		}
		most := max(e.loads[from]-q.lately, e.loads[to]+q.lately)
		if most < limit || most == limit && best != nil && q.lately < best.lately {
			best, limit = q, most
		}
	}
	return best
}

// move gives q to worker to. Its packets keep their order: the worker that had it has ended its batch before the other begins one. The caller
// holds mu. With an error nobody reads q.
func (e *Engine) move(q *queue, to *worker) error {
	from, fd := q.worker.Load(), q.queue.PollFD()
	from.poll.remove(fd)
	q.worker.Store(nil) // whoever finds it among what it looked at a moment ago leaves it alone
	from.quiesce()
	q.worker.Store(to)
	err := to.poll.add(fd, q.id)
	if err != nil {
		q.worker.Store(from)
		to.quiesce()
		to = from
		err = from.poll.add(fd, q.id)
	}
	from.queues--
	to.queues++
	if err == nil && q.of.lost.Load() { // meanwhile, and may not have been taken from epoll
		to.poll.remove(fd)
	}
	return err
}
