package lease

import (
	"slices"
	"time"
)

// Event is something that has happened to a node: what Core.Step takes in. It is one of the types of
// this file.
type Event interface{ event() }

// Begin says that the node begins to acquire a lease, or to keep one. Before it, and after the end,
// a core takes everything in and does nothing.
type Begin struct {
	// Keeps is set if the lease is to be kept, and what becomes of peers to be published, until Stop. Without it
	// everything ends with the effect Acquired.
	Keeps bool
}

// News is what has come in from outside since the last one, in any combination; the zero value is
// nothing. Of two that come one after the other Merge makes one, so that a flood costs one step.
type News struct {
	// Snapshot is the store's watch's latest; nil for none. Nobody changes it any more.
	Snapshot *Snapshot
	// Lost is why the watch has heard nothing since then; nil if it hears.
	Lost error
	// Watched says that the watch has said something: a Snapshot, or that it is Lost.
	Watched bool
	// Messages are what others have said to those of our identity, the oldest first.
	Messages []Message
	// Answered is the latest round of asking to which an answer came over the underlay; 0 for none.
	Answered int
	// Local is what this node says of itself from now on; nil for no change.
	Local *Local
	// Proven says that the configuration can be served: from now on it is cached.
	Proven bool
}

// Tick says that the time has come that the last Wait named, or only that time has passed.
type Tick struct{}

// Result is what became of the Call of the same number. A field is set if the operation is one that
// asks for it.
type Result struct {
	Number    uint64
	Snapshot  Snapshot      // of ReadStore
	Revision  int64         // of WriteRecord and ReplaceRecord: where the record is now
	Remaining time.Duration // of ReadRemaining
	// Err is the store's error; nil if the operation was done. With any other error than ErrConflict a
	// write may have been done all the same.
	Err error
}

// Saved is what became of a SaveCache.
type Saved struct {
	// Written says that the file is another one: nothing is written twice.
	Written bool
	Err     error
}

// Stop ends what Begin began. A call that is under way still gets its Result.
type Stop struct {
	// Last is what has come in before it, on which nobody acts any more.
	Last News
}

func (Begin) event()  {}
func (News) event()   {}
func (Tick) event()   {}
func (Result) event() {}
func (Saved) event()  {}
func (Stop) event()   {}

// messagesMost bounds the questions that wait to be read, and the answers.
const messagesMost = 64

// Merge adds what came after n.
func (n *News) Merge(later News) {
	if later.Snapshot != nil {
		n.Snapshot = later.Snapshot
	}
	if later.Watched {
		// A snapshot ends an outage, and an outage may follow a snapshot that was not taken in yet,
		// which is then still good.
		n.Watched, n.Lost = true, later.Lost
	}
	n.Messages = mergeMessages(n.Messages, later.Messages)
	n.Answered = max(n.Answered, later.Answered)
	if later.Local != nil {
		n.Local = later.Local
	}
	n.Proven = n.Proven || later.Proven
}

// mergeMessages is old and then later. What somebody says again replaces what was said before: who was cut
// off for long finds hundreds of one sender's questions. Of a flood from many senders the first are kept, of questions
// and of answers, since who asks asks again, and an answer that is lost makes silent who lives.
func mergeMessages(old, later []Message) []Message {
	if len(later) == 0 {
		return old
	}
	out := slices.Clone(old)
	for _, m := range later {
		out = slices.DeleteFunc(out, m.replaces)
		alike := 0
		for _, o := range out {
			if o.Asks == m.Asks {
				alike++
			}
		}
		if alike < messagesMost {
			out = append(out, m)
		}
	}
	return out
}

// any reports whether there is something in it.
func (n *News) any() bool {
	return n.Watched || n.Snapshot != nil || len(n.Messages) > 0 || n.Answered != 0 || n.Local != nil || n.Proven
}
