package lease

import (
	"log/slog"
	"time"
)

// Effect is something to be done for a core, as Step returns it. It is one of the types of this file.
// Effects are done in their order, each before the next event but for what says otherwise.
type Effect interface{ effect() }

// Listen asks that News have what others say to the identity Node, until the Stop or the Acquired.
type Listen struct{ Node string }

// Watch asks that News have what the store has, now and after every change, until the Stop.
type Watch struct{}

// Call asks for a request to the store and for its Result. There is one at a time; what else happens
// before its Result a core takes in and thinks about later.
type Call struct {
	Number    uint64
	Operation Operation
}

// AskUnderlay asks whether the owner of a record answers over the underlay, at the addresses of Attrs, within
// answerWait. If it does, News have the Round; else nothing happens. It is done beside everything else.
type AskUnderlay struct {
	Round int
	Attrs Attrs
}

// SaveCache asks that Cached is what the next start without a store begins with, and for a Saved.
// Cached shares memory with the core, and nobody may change it.
type SaveCache struct{ Cached Cached }

// Publish hands out a new complete Set, which nobody may change.
type Publish struct{ Set Set }

// Log is a line for the log, with arguments as slog takes them.
type Log struct {
	Level   slog.Level
	Message string
	Args    []any
}

// Wait asks for a Tick at Until if there is no other event before. It replaces the Wait before it.
type Wait struct{ Until time.Time }

// Acquired is the end of a Begin that does not keep: the first Set, which was published too, or why
// there is none before somebody has changed the store or this node.
type Acquired struct {
	Set Set
	Err error
}

func (Listen) effect()      {}
func (Watch) effect()       {}
func (Call) effect()        {}
func (AskUnderlay) effect() {}
func (SaveCache) effect()   {}
func (Publish) effect()     {}
func (Log) effect()         {}
func (Wait) effect()        {}
func (Acquired) effect()    {}
