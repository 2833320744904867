package events

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// File is where the history is in the state directory, one event a line, and Former the part before it: when
// File is full it takes the place of Former. So the two never take more than twice maxFile, and hold at least
// one of it.
const (
	File   = "events.jsonl"
	Former = "events.jsonl.1"
)

// maxFile is the size of File, in bytes, from which it becomes Former: some thousand events.
const maxFile = 256 << 10

// Event is one thing that happened.
type Event struct {
	// Time is when, by the clock as it was then: it may be later than that of an event that came after it.
	Time time.Time `json:"time"`
	// Kind says what happened, in a word that stays the same from version to version.
	Kind Kind `json:"kind"`
	// Level is info, warning or error.
	Level string `json:"level"`
	// Message says it to people, as in the log.
	Message string `json:"message"`
	// Details are what else is known, by the log's keys.
	Details map[string]string `json:"details,omitempty"`
}

// Limits of one event; more is cut off.
const (
	maxMessage = 400 // bytes
	maxDetail  = 400 // bytes
	maxDetails = 16
)

// line returns the event as it is written.
func (e Event) line() ([]byte, error) {
	e.Message = clip(e.Message, maxMessage)
	for k, v := range e.Details {
		e.Details[k] = clip(v, maxDetail)
	}
	b, err := json.Marshal(e)
	return append(b, '\n'), err
}

// clip shortens s to n bytes at most, at the end of a rune.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
