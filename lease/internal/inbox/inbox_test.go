package inbox

import (
	"sync"
	"testing"
)

// Of whatever is posted nothing is lost, nothing comes twice, and who waits for Wake has all.
func TestNothingIsLost(t *testing.T) {
	b := New(func(into *int, later int) { *into += later })
	const senders, each = 8, 1000
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range each {
				b.Post(1)
			}
		})
	}
	got := 0
	for got < senders*each {
		<-b.Wake // a sum that is not whole has another one coming
		got += b.Take()
	}
	all.Wait()
	if rest := b.Take(); got != senders*each || rest != 0 {
		t.Errorf("%d of %d came, and then %d", got, senders*each, rest)
	}
}

// A note is for whoever takes, and wakes nobody; a look takes nothing.
func TestNoteAndPeek(t *testing.T) {
	b := New(func(into *string, later string) { *into += later })
	b.Note("a")
	b.Note("b")
	select {
	case <-b.Wake:
		t.Error("a note wakes")
	default:
	}
	b.Post("c")
	select {
	case <-b.Wake:
	default:
		t.Error("a post does not wake")
	}
	if p, g, rest := b.Peek(), b.Take(), b.Take(); p != "abc" || g != "abc" || rest != "" {
		t.Errorf("%q, %q, then %q", p, g, rest)
	}
}
