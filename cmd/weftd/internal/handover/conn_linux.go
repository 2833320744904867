package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"weft/cmd/internal/rights"
)

// Version is of the words and of what they mean. The processes have to have the same.
const Version = 3

// Word says what a Message is.
type Word string

// The words, which the package comment explains.
const (
	Item     Word = "item"     // Name, Body and FDs are those of a custody.Item
	Claim    Word = "claim"    // Name and the descriptor of a presence.HostClaim
	Listener Word = "listener" // Name and the descriptor of what listens
	Store    Word = "store"    // Body is what the service manager keeps, by custody.Stored
	End      Word = "end"
	Ready    Word = "ready"
	Yours    Word = "yours"   // Body is a Deadline
	Flowing  Word = "flowing" // Body is a Report
	Bye      Word = "bye"
	Back     Word = "back" // Name is the reason
)

// Deadline is until when the new process may begin to read: the time since the machine started, also while it was suspended. It has
// to look right before it begins, as it may have been kept from running.
type Deadline struct {
	Boot time.Duration `json:"boot"`
}

// Report is what the new process says of itself.
type Report struct {
	Version string `json:"version"`
	Ports   int    `json:"ports"`
	Pods    int    `json:"pods"`
}

// Message is one packet. Received descriptors belong to the receiver.
type Message struct {
	Word Word            `json:"word"`
	Name string          `json:"name,omitempty"`
	Body json.RawMessage `json:"body,omitempty"`
	FDs  []int           `json:"-"`
}

// maxMessage bounds a packet, in bytes: an item's name and bytes as JSON has them, and what is around them.
const maxMessage = 64 << 10

// ErrGone says that the other process has closed the connection, or ended.
var ErrGone = errors.New("the other weftd is gone")

// Conn is one end of the connection. Send and Receive may be called at the same time, each by one goroutine.
type Conn struct {
	c *net.UnixConn
	b [maxMessage]byte

	mu          sync.Mutex // held while a deadline for reading is set
	interrupted bool
}

// NewConn takes c over.
func NewConn(c *net.UnixConn) *Conn { return &Conn{c: c} }

// Close ends the connection.
func (c *Conn) Close() { _ = c.c.Close() } // what was sent is in the other's queue

// Interrupt has Receive return ErrGone at once, also one that is called later. The other process does not notice, until Close: the end for
// reading is not shut, since the kernel lets the other one know of that.
func (c *Conn) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupted = true
	_ = c.c.SetReadDeadline(time.Unix(1, 0)) // it is closed already, or works
}

// deadline has reads end at until, or at once if they are interrupted.
func (c *Conn) deadline(until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted {
		until = time.Unix(1, 0)
	}
	return c.c.SetReadDeadline(until)
}

func (c *Conn) isInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

// sendWait bounds how long a message may wait until the other one has read those before it.
const sendWait = 5 * time.Second

// Send sends one message, whose descriptors stay the caller's.
func (c *Conn) Send(m Message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("hand-over: %w", err)
	}
	if len(b) > maxMessage || len(m.FDs) > rights.Most {
		return fmt.Errorf("hand-over: %s %q has %d bytes and %d descriptors: %d and %d can be sent at once", m.Word, m.Name, len(b), len(m.FDs), maxMessage, rights.Most)
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(sendWait)); err != nil {
		return ErrGone
	}
	if err := rights.Send(c.c, b, m.FDs); err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// Receive returns the next message, or an error that wraps ErrGone. It waits until the deadline; the zero time is for none.
func (c *Conn) Receive(until time.Time) (Message, error) {
	if err := c.deadline(until); err != nil {
		return Message{}, ErrGone
	}
	got, err := rights.Receive(c.c, c.b[:], rights.Most)
	var m Message
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout() && c.isInterrupted():
		err = fmt.Errorf("%w: this end was interrupted", ErrGone)
	case errors.As(err, &late) && late.Timeout():
		err = fmt.Errorf("the other weftd does not answer: %w", err)
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrGone, err)
	case got.N == 0:
		err = ErrGone
	case got.Lost:
		err = errors.New("hand-over: not all descriptors could be received: raise RLIMIT_NOFILE (LimitNOFILE= in weftd's unit)")
	default:
		err = json.Unmarshal(c.b[:got.N], &m)
	}
	if err != nil {
		rights.Close(got.FDs)
		return Message{}, err
	}
	m.FDs = got.FDs
	return m, nil
}

// Expect is Receive of a message with that word. An old one's Back is a *BackError.
func (c *Conn) Expect(w Word, until time.Time) (Message, error) {
	m, err := c.Receive(until)
	switch {
	case err != nil:
		return m, err
	case m.Word == w:
		return m, nil
	}
	rights.Close(m.FDs)
	if m.Word == Back {
		return Message{}, &BackError{m.Name}
	}
	return Message{}, fmt.Errorf("hand-over: the other weftd says %q, and not %q", m.Word, w)
}

// BackError says that the old weftd goes on.
type BackError struct{ Why string }

func (e *BackError) Error() string { return "the weftd that runs goes on: " + e.Why }

// body is v as a message's Body. Only what always can be is encoded.
func body(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}
