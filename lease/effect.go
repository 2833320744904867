package lease

import (
	"log/slog"
	"time"
)

// Effect is an instruction of a core, returned by Step. It is one of the types of this file. The caller
// carries effects out in order, each before the next event unless its type says otherwise.
type Effect interface{ effect() }

// Listen asks for the messages to the identity Node, delivered as News, until Stop or Acquired.
type Listen struct{ Node string }

// Watch asks for the content of the store, delivered as News now and after every change, until Stop.
type Watch struct{}

// Call asks for a request to the store, and for its Result. There is one at a time. Until the Result, a core
// takes events in and considers them later.
type Call struct {
	Number    uint64
	Operation Operation
}

// AskUnderlay asks whether the owner of a record answers over the underlay, at the addresses of Attrs, within
// answerWait. If it does, News have the Round; otherwise nothing happens. It runs beside everything else.
type AskUnderlay struct {
	Round int
	Attrs Attrs
}

// SaveCache asks the caller to save Cached, with which the next start without a store begins, and to report
// Saved. Cached shares memory with the core, and nobody may change it.
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
