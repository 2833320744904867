package keeper

import (
	"log/slog"
	"time"

	"weft/lease"
	"weft/lease/belief"
)

// Effect is an instruction of a core, returned by Step. It is one of the types of this file, or of those that
// package kube adds. The caller carries effects out in order, each before the next event unless its type says
// otherwise.
type Effect any

// Listen asks for the messages to the identity Node, delivered as News, until Stop.
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
	Attrs lease.Attrs
}

// SaveCache asks the caller to save Cached, with which the next start without a store begins, and to report
// Saved. Cached shares memory with the core, and nobody may change it.
type SaveCache struct{ Cached belief.Cached }

// Do saves the state in c.
func (f SaveCache) Do(c *belief.Cache) Saved {
	written, err := c.Save(f.Cached)
	return Saved{written, err}
}

// Publish hands out a new complete Set, which nobody may change.
type Publish struct{ Set lease.Set }

// Log is a line for the log, with arguments as slog takes them.
type Log struct {
	Level   slog.Level
	Message string
	Args    []any
}

// Wait asks for a Tick at Until if there is no other event before. It replaces the Wait before it.
type Wait struct{ Until time.Time }
