package lease

import "sync"

// mailMost bounds what others have said and nobody has looked at.
const mailMost = 64

// inbox keeps the latest word of a watch, and what others say, until the keeper looks.
type inbox struct {
	mu       sync.Mutex
	snapshot *Snapshot
	err      error
	mail     []Message
	round    int           // the latest round of asking that was answered over the underlay
	wake     chan struct{} // capacity 1
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

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
	b.poke()
}

// told keeps a message. Of a flood the first are kept: who asks asks again.
func (b *inbox) told(m Message) {
	b.mu.Lock()
	if len(b.mail) < mailMost {
		b.mail = append(b.mail, m)
	}
	b.mu.Unlock()
	b.poke()
}

// echo notes that the underlay has answered in a round.
func (b *inbox) echo(round int) {
	b.mu.Lock()
	b.round = round
	b.mu.Unlock()
	b.poke()
}

func (b *inbox) poke() {
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

// said returns what others have said since the last call, and the round that was answered.
func (b *inbox) said() ([]Message, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	b.mail = nil
	return m, b.round
}
