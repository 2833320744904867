// Package inbox keeps what has come for a loop until it takes it.
package inbox

import "sync"

// Inbox keeps news of the type N: of two that come one after the other it makes one, so that a flood costs
// one turn of the loop. Its methods are safe for concurrent use.
type Inbox[N any] struct {
	// Wake has something in it after a Post; one loop waits on it.
	Wake chan struct{}

	merge func(into *N, later N)
	mu    sync.Mutex // protects news
	news  N
}

// New returns an empty inbox. merge adds what came later.
func New[N any](merge func(into *N, later N)) *Inbox[N] {
	return &Inbox[N]{Wake: make(chan struct{}, 1), merge: merge}
}

// Post adds n, and wakes the loop. It never blocks.
func (b *Inbox[N]) Post(n N) {
	b.Note(n)
	select {
	case b.Wake <- struct{}{}:
	default:
	}
}

// Note adds n, which is for whoever looks and wakes nobody.
func (b *Inbox[N]) Note(n N) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.merge(&b.news, n)
}

// Peek returns what there is.
func (b *Inbox[N]) Peek() N {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.news
}

// Take returns what there is, and leaves nothing.
func (b *Inbox[N]) Take() (n N) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, b.news = b.news, n
	return n
}
