package routing

import (
	"errors"
	"maps"
	"sync"
	"time"
)

// askedDevices asks the devices of type wireguard what they know, beside whoever wants to know it: a process that hangs keeps no reader waiting
// for longer than he likes, who has its last answer then. It is safe for concurrent use.
type askedDevices struct {
	// ends are the devices that there are. It may take as long as a reconcile.
	ends func() map[string]wireGuardEnd

	wg sync.WaitGroup // of the asking that is under way

	mu    sync.Mutex              // protects what follows, and is held for no device
	last  map[string]deviceAnswer // by device
	fault error                   // of the last time that all were asked
	under chan struct{}           // closed when the asking that is under way has ended; nil if none is
	vain  outcries
	over  bool
}

// deviceAnswer is what a device said last.
type deviceAnswer struct {
	peers     []EncryptedPeer
	asked     time.Time
	wrongKeys uint64
}

func newAskedDevices(ends func() map[string]wireGuardEnd) *askedDevices {
	return &askedDevices{ends: ends, last: map[string]deviceAnswer{}, vain: outcries{}}
}

// within has the devices asked, and waits for that for at most patience. It returns what each said last, and why one has not answered since.
func (q *askedDevices) within(patience time.Duration) (map[string]deviceAnswer, error) {
	q.mu.Lock()
	if q.under == nil && !q.over {
		q.under = make(chan struct{})
		q.wg.Go(func() { // ends with the devices, at the latest: close waits
			err := q.ask(q.ends())
			q.mu.Lock()
			defer q.mu.Unlock()
			close(q.under)
			q.under, q.fault = nil, err
		})
	}
	under := q.under
	q.mu.Unlock()
	if under != nil {
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-under:
		case <-t.C:
		}
	}
	return q.known()
}

// known is what the devices said last.
func (q *askedDevices) known() (map[string]deviceAnswer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.last), q.fault
}

// ask asks all of these devices, which are all that there are, and returns when each has answered or failed.
func (q *askedDevices) ask(all map[string]wireGuardEnd) error {
	q.mu.Lock()
	for name := range q.last {
		if all[name] == nil {
			delete(q.last, name)
		}
	}
	q.mu.Unlock()
	faults := make(chan error, len(all))
	for name, end := range all {
		go func() { faults <- q.askOne(name, end) }() // what follows waits
	}
	var err error
	for range all {
		err = errors.Join(err, <-faults)
	}
	return err
}

func (q *askedDevices) askOne(name string, end wireGuardEnd) error {
	now := time.Now()
	ps, err := end.Peers()
	if err != nil {
		return err
	}
	wrong := end.WrongKeys()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last[name].asked.After(now) { // somebody asked later, and has his answer
		return nil
	}
	a := deviceAnswer{asked: now, wrongKeys: wrong}
	vain := q.vain.note(name, ps, now)
	for i, p := range ps {
		a.peers = append(a.peers, EncryptedPeer{name, vain[i], now, p})
	}
	q.last[name] = a
	return nil
}

// close waits until nothing is under way, and has nothing begin. The devices have to be closed before.
func (q *askedDevices) close() {
	q.mu.Lock()
	q.over = true
	q.mu.Unlock()
	q.wg.Wait()
}
