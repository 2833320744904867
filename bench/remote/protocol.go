package remote

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"weft/bench/load"
	"weft/bench/report"
)

// Version is that of the protocol. Both ends must have the same.
const Version = 1

// DefaultPort is the port at which a server listens by default, with TCP and UDP.
const DefaultPort = 5210

const (
	maxLine   = 4 << 10          // bytes of a request or a reply
	greetTime = 5 * time.Second  // how long a client waits for the first words of a connection
	helloTime = 2 * time.Second  // how long a server does
	idleTime  = 30 * time.Second // how long a server waits for a session's next request
	replyTime = 15 * time.Second // how long a client waits for an answer, beyond what measuring takes
	secretLen = 16               // bytes of a nonce and of a session's name
)

// ErrBusy is wrapped by a client's error if the server measures with another client.
var ErrBusy = errors.New("the server is busy")

// greeting is the server's first line on a connection.
type greeting struct {
	Version int    `json:"weft_bench"`
	Nonce   string `json:"nonce,omitempty"`
}

// hello is the client's first line. Without Session the connection is for control, else for data of that session.
type hello struct {
	Version int    `json:"weft_bench"`
	Proof   string `json:"proof,omitempty"`
	Session string `json:"session,omitempty"`
	Role    role   `json:"role,omitempty"`
	CPU     int    `json:"cpu"` // on which an echo runs, or load.AnyCPU
}

// role is what the server does with a data connection.
type role string

const (
	sink   role = "sink"   // reads and counts
	source role = "source" // writes
	echo   role = "echo"   // sends back
)

// op says what a request asks for.
type op string

const (
	opBytes  op = "bytes"  // says how many bytes the sinks have read, and the machine's processor time
	opOpen   op = "open"   // opens a receiver for datagrams of Traffic's sizes
	opExpect op = "expect" // begins to count the datagrams with Tag
	opCount  op = "count"  // says how many of those have arrived
	opQuiet  op = "quiet"  // waits until no datagram arrives any more
	opSend   op = "send"   // sends Traffic to the client's Port, at Rate for Milliseconds, with Tag
	opClose  op = "close"  // closes the receiver
)

type request struct {
	Op           op               `json:"op"`
	Tag          uint64           `json:"tag,omitempty"`
	Receive      load.ReceiveMode `json:"receive,omitempty"`
	Traffic      *load.Traffic    `json:"traffic,omitempty"`
	Rate         float64          `json:"rate_per_second,omitempty"`
	Milliseconds int64            `json:"milliseconds,omitempty"`
	Port         uint16           `json:"port,omitempty"`
}

type reply struct {
	Error   string          `json:"error,omitempty"`
	Busy    bool            `json:"busy,omitempty"`
	Session string          `json:"session,omitempty"`
	Machine *report.Machine `json:"machine,omitempty"`
	// Count is a number of bytes or datagrams. Nanoseconds is the time on the server's clock since the session
	// began, or how long sending took.
	Count       int64 `json:"count"`
	Nanoseconds int64 `json:"nanoseconds"`
	// CPU is the processor time of the server's machine since it began, in nanoseconds.
	CPU int64 `json:"cpu_nanoseconds,omitempty"`
}

// lines reads JSON values, one from each line.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, maxLine)} }

func (l *lines) read(v any) error {
	b, err := l.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return fmt.Errorf("a line of more than %d bytes", maxLine)
	case err != nil:
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("not this protocol: %w", err)
	}
	return nil
}

func writeLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// newSecret returns random bytes in hexadecimal.
func newSecret() string {
	b := make([]byte, secretLen)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return hex.EncodeToString(b)
}

// proof returns what only somebody can know who knows the token. The token cannot be learned from it.
func proof(token, nonce string) string {
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte(nonce))
	return hex.EncodeToString(m.Sum(nil))
}

func proves(token, nonce, given string) bool {
	return hmac.Equal([]byte(proof(token, nonce)), []byte(given))
}
