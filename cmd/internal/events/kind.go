package events

import (
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"weft/lease"
	"weft/routing/event"
	"weft/tunnel/port"
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

// Kind says what happened. Scripts rely on it, so that none changes its meaning.
type Kind string

// The daemon's own kinds; the other packages declare theirs. The comments become docs/reference/events.md.
const (
	// weftd started
	Started Kind = "started"
	// weftd ended, as asked or with the `reason`
	Stopped Kind = "stopped"
	// what the start waits for
	Waiting Kind = "waiting"
	// the node became ready
	Ready Kind = "ready"
	// the node ceased to be ready; `reasons` are those of `/readyz`
	NotReady Kind = "not_ready"
	// the node's lease was renewed with less than three quarters of the margin `left`
	LeaseLate Kind = "lease_renewed_late"
	// `weft lease release` deleted a record
	LeaseReleased Kind = "lease_released"
	// `subnet.env` was written, put back, or could not be written
	SubnetFile Kind = "subnet_file"
	// there is another peer; more than eight at once are one event, with `count`
	PeerCome Kind = "peer_come"
	// a peer is there no more
	PeerGone Kind = "peer_gone"
	// a peer's record is another one, in what `changes` says
	PeerChanged Kind = "peer_changed"
	// a directly attached pod made the queue of its interface longer than weftd's, `times` times since the
	// last event, and weftd put the length back
	PodQueue Kind = "pod_queue"
	// a record in the store is not believed
	RecordRejected Kind = "record_rejected"
	// the network configuration changed, was taken up, or cannot be used
	Config Kind = "config"
	// any other warning or error of the log
	Fault Kind = "fault"
	// any other line of the log
	Note Kind = "note"
)

// Kinds lists all kinds.
func Kinds() []string {
	return slices.Concat(
		words(
			Started, Stopped, Waiting, Ready, NotReady, LeaseLate, LeaseReleased, SubnetFile, PeerCome,
			PeerGone, PeerChanged, PodQueue, RecordRejected, Config, Fault, Note,
		),
		words(
			lease.EventAcquired, lease.EventState, lease.EventPutBack, lease.EventContested,
			lease.EventSubnetChanged, lease.EventStoreLost, lease.EventStoreBack, lease.EventRemovalsDoubted,
			lease.EventKubernetesStatus,
		),
		words(
			port.EventPeerUnanswering, port.EventPeerHeldBack, port.EventOutletChosen,
			port.EventOffloadLost, port.EventPathMTU,
		),
		words(
			event.PeerUnused, event.PeerLossy, event.UnderlayChosen, event.UnderlayLost, event.RoutesRepaired,
			event.RulesRepaired, event.RulesInPlace, event.DeviceRepaired, event.TakenOver, event.PathChosen,
			event.ReceiveJoining,
		),
	)
}

func words[T ~string](l ...T) (out []string) {
	for _, k := range l {
		out = append(out, string(k))
	}
	return out
}
