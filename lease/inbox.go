package lease

import "sync"

// inbox keeps the latest word of a watch until the keeper looks.
type inbox struct {
	mu       sync.Mutex
	snapshot *Snapshot
	err      error
	wake     chan struct{} // capacity 1
}

func (b *inbox) changed(s Snapshot) { b.post(&s, nil) }
func (b *inbox) lost(err error)     { b.post(nil, err) }

// post replaces both: a snapshot ends an outage, and an outage may follow a
// snapshot that has not been looked at, which is then still good.
func (b *inbox) post(s *Snapshot, err error) {
	b.mu.Lock()
	if s != nil {
		b.snapshot = s
	}
	b.err = err
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// take returns what has come since the last call; nil for nothing.
func (b *inbox) take() (*Snapshot, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, err := b.snapshot, b.err
	b.snapshot, b.err = nil, nil
	return s, err
}
