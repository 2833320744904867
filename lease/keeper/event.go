package keeper

import (
	"slices"
	"time"

	"weft/lease"
)

// Event is an input of Core.Step. It is one of the types of this file.
type Event any

// Begin makes the core acquire and keep a lease, and publish changes of peers, until Stop. Before it, and
// after the end, a core takes events in and does nothing.
type Begin struct{}

// News has the inputs since the last News, in any combination; the zero value has none. Merge makes one of
// two that follow each other, so that a flood costs one step.
type News struct {
	// Snapshot is the store's watch's latest; nil for none. Nobody changes it any more.
	Snapshot *lease.Snapshot
	// Lost is the reason for which the watch has been silent since then; nil if it is not.
	Lost error
	// Watched means that the watch has reported a Snapshot or Lost.
	Watched bool
	// Messages lists messages to our identity, the oldest first.
	Messages []lease.Message
	// Answered is the latest round of asking to which an answer came over the underlay; 0 for none.
	Answered int
	// Local is the new self-description of this node; nil for no change.
	Local *Local
	// Proven says that the configuration can be served: from now on it is cached.
	Proven bool
}

// Tick means that the time of the last Wait has come, or only that time has passed.
type Tick struct{}

// Result is the result of the Call with the same number. Only the fields of its operation are set.
type Result struct {
	Number    uint64
	Snapshot  lease.Snapshot // of ReadStore
	Revision  int64          // of WriteRecord and ReplaceRecord: where the record is now
	Remaining time.Duration  // of ReadRemaining
	// Err is the store's error; nil if the operation was done. With any other error than ErrConflict a
	// write may have been done all the same.
	Err error
}

// Saved is the result of a SaveCache.
type Saved struct {
	// Written means that the file has changed: the same content is not written twice.
	Written bool
	Err     error
}

// Stop ends the work that Begin began. A call that runs still gets its Result.
type Stop struct {
	// Last has the inputs before the stop, which have no effect any more.
	Last News
}

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

// mergeMessages is old and then later. A later message replaces the sender's earlier one, since a node that
// was cut off for long finds hundreds of one sender's questions. Of a flood from many senders the first are
// kept, of questions and of answers, since who asks asks again, and an answer that is lost makes silent who
// lives.
func mergeMessages(old, later []lease.Message) []lease.Message {
	if len(later) == 0 {
		return old
	}
	out := slices.Clone(old)
	for _, m := range later {
		out = slices.DeleteFunc(out, m.Replaces)
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
