package lease

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// ErrMute means that this node may not write messages to the store, as with an etcd role that has only
// flannel's keys.
var ErrMute = errors.New("the store takes no messages")

// MessageTTL is how long a message lies in the store.
const MessageTTL = 30 * time.Second

// Message is sent by one process to those that run under the identity To. The store keeps it for a short
// while, apart from the records.
type Message struct {
	// To is the identity that it is for. The store has it in the key.
	To string `json:"-"`
	// From names the process that says it, Node its identity.
	From, Node string
	// Asks is set on a question: does anybody hold Subnets, and live?
	Asks bool `json:",omitempty"`
	// Answers is the From of the question that this answers; "" on a question.
	Answers string `json:",omitempty"`
	// Subnets is what is asked for, and in an answer what the sender holds.
	Subnets string
	// Revision is where the store last had the sender's record as the sender wrote it; 0 if it never had, or is
	// another store since, or went back. Of two that both hold something the later one answers.
	Revision int64
	// Serves is set, without a Revision, by a process that holds Subnets all the same: the store has had its
	// record since its start, and it knows of no other living owner. An older weft never sets it.
	Serves bool `json:",omitempty"`
	// Address is where the sender is reached.
	Address netip.Addr `json:",omitzero"`
}

// maxMessage bounds a message, in bytes.
const maxMessage = 2 << 10

// EncodeMessage returns the value of a message.
func EncodeMessage(m Message) ([]byte, error) {
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxMessage {
		err = fmt.Errorf("%d bytes, more than %d", len(b), maxMessage)
	}
	if err != nil {
		return nil, fmt.Errorf("encode message for %q: %w", m.To, err)
	}
	return b, nil
}

// DecodeMessage reads the value of a message for the identity to. The error wraps ErrValue.
func DecodeMessage(to string, b []byte) (Message, error) {
	if len(b) > maxMessage {
		return Message{}, fmt.Errorf("%w: %d bytes, more than %d", ErrValue, len(b), maxMessage)
	}
	var m Message
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&m); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrValue, err)
	}
	if !ValidNode(m.Node) || !ValidNode(m.From) || m.Answers != "" && !ValidNode(m.Answers) ||
		m.Asks == (m.Answers != "") {
		return Message{}, fmt.Errorf("%w: it names nobody, or is no question and no answer", ErrValue)
	}
	m.To = to
	return m, nil
}

// Overlaps reports whether the message is about something of s.
func (m Message) Overlaps(s Subnets) bool {
	t, err := ParseKey(m.Subnets)
	return err == nil && t.Overlaps(s)
}

// Replaces reports whether m, which came after old, leaves nothing to be read in old: it is the same
// sender's question, or its answer to the same question.
func (m Message) Replaces(old Message) bool {
	return old.From == m.From && old.Asks == m.Asks && old.Answers == m.Answers
}
