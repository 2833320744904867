package control

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"weft/routing/probe"
)

// Matrix is what the nodes know of each other, asked of all of them by one.
type Matrix struct {
	// At is when they had been asked, which took Took nanoseconds.
	At   time.Time     `json:"at"`
	Took time.Duration `json:"tookNanoseconds"`
	// Full says that they were asked for all they know. Of very many nodes only what is not well is asked for.
	Full bool `json:"full"`
	// Port is the UDP port of the overlay, 0 if packets go without a tunnel.
	Port uint16 `json:"port,omitempty"`
	// Nodes are this node and all its peers, by name.
	Nodes []MatrixNode `json:"nodes"`
}

// MatrixNode is one node, and what it has told.
type MatrixNode struct {
	// Name, NodeID, Subnets and Address are as those of Peer.
	Name    string         `json:"name"`
	NodeID  string         `json:"nodeID,omitempty"`
	Subnets []netip.Prefix `json:"subnets"`
	Address netip.Addr     `json:"address,omitzero"`
	// Self says that it is the node that asked.
	Self bool `json:"self,omitempty"`
	// Tells is yes, partly or no; Reason says why it did not tell all.
	Tells  string `json:"tells"`
	Reason string `json:"reason,omitempty"`
	// Of counts the overlay addresses of its peers, as it has told: Answering those that answer it, of which
	// Lossy lose packets or large ones, and Silent those that do not.
	Of        int `json:"of"`
	Answering int `json:"answering"`
	Silent    int `json:"silent"`
	Lossy     int `json:"lossy"`
	// Seen has what it knows of each; unless Matrix.Full only of those that are not well, and of them some
	// dozens at most.
	Seen []MatrixCell `json:"seen"`
}

// MatrixCell is what one node knows of one overlay address of another.
type MatrixCell struct {
	// Node is the place of the other node in Matrix.Nodes, -1 if the asking node does not know it. Name is its
	// name.
	Node    int        `json:"node"`
	Name    string     `json:"name,omitempty"`
	Address netip.Addr `json:"address"`
	// The fields are those of Probe. For is how long Answers has been so, in seconds.
	By        string   `json:"by"`
	Answers   string   `json:"answers"`
	For       int64    `json:"forSeconds"`
	RTT       int64    `json:"rttNanoseconds,omitempty"`
	LossOut   *float64 `json:"lossOut,omitempty"`
	LossIn    *float64 `json:"lossIn,omitempty"`
	Loss      *float64 `json:"loss,omitempty"`
	Lossy     bool     `json:"lossy,omitempty"`
	LargeLost bool     `json:"largeLost,omitempty"`
	PathMTU   int      `json:"innerPathMTU,omitempty"`
	// Heard says that datagrams of the other arrive, since it does not answer.
	Heard bool `json:"heard,omitempty"`
	// Silence says what of the other answers, if it does not: one of the words below.
	Silence string `json:"silence,omitempty"`
}

// The words of MatrixCell.Silence.
const (
	SilentUnsendable = "cannot-send"      // the node that asks it cannot send there
	SilentRefused    = "port-refused"     // its kernel says that nothing listens on the port
	SilentKernel     = "kernel-answers"   // its kernel answers through the overlay
	SilentHeard      = "heard"            // what it sends arrives
	SilentUnderlay   = "underlay-answers" // its kernel answers on the underlay
	SilentEverything = "nothing-answers"  // nothing of it answers
)

// SilenceOf is the word for what of a node answers that gives no answer.
func SilenceOf(s probe.Silence) string {
	switch s {
	case probe.Unsendable:
		return SilentUnsendable
	case probe.PortRefused:
		return SilentRefused
	case probe.KernelOnly:
		return SilentKernel
	case probe.HeardOnly:
		return SilentHeard
	case probe.UnderlayOnly:
		return SilentUnderlay
	case probe.Nothing:
		return SilentEverything
	case probe.NoSilence:
	}
	return ""
}

// Matrix has the daemon ask its peers what they know of theirs. The error wraps ErrRefused if it asks nobody.
func (c *Client) Matrix(ctx context.Context) (m Matrix, err error) {
	return m, c.Do(ctx, http.MethodPost, "/v1/matrix", nil, &m)
}

// AskRequest asks for a series of questions to a peer, through the overlay, whether its weftd answers.
type AskRequest struct {
	// Address is the overlay address of the peer that is asked, as in Probe.
	Address netip.Addr `json:"address"`
	// Count is how many questions are sent; Interval is the time from one to the next, and Timeout how long the
	// answer to one may take.
	Count    int           `json:"count"`
	Interval time.Duration `json:"intervalNanoseconds"`
	Timeout  time.Duration `json:"timeoutNanoseconds"`
}

// MaxAsk bounds how long one AskRequest may take, and MaxAskCount its questions.
const (
	MaxAsk      = 8 * time.Second
	MaxAskCount = 200
)

// Asked is what came of an AskRequest.
type Asked struct {
	// RTTs has the round trip of each question, in nanoseconds; 0 for one without an answer.
	RTTs []time.Duration `json:"rttNanoseconds"`
	// Refused says that the peer's host answered that nothing listens there.
	Refused bool `json:"refused,omitempty"`
	// Unsent says why the questions could not be sent.
	Unsent string `json:"unsent,omitempty"`
}

func (r AskRequest) check() error {
	last := time.Duration(max(0, r.Count-1)) * r.Interval
	if r.Count < 1 || r.Count > MaxAskCount || r.Interval < 0 || r.Interval > MaxAsk || r.Timeout <= 0 ||
		r.Timeout > MaxAsk || last+r.Timeout > MaxAsk {
		return fmt.Errorf("%w: %d questions, one each %v, and %v for an answer: at most %d within %v", ErrRefused,
			r.Count, r.Interval, r.Timeout, MaxAskCount, MaxAsk)
	}
	return nil
}

func serveAsk(n ProbeService, w http.ResponseWriter, r *http.Request) {
	var req AskRequest
	if !readRequest(w, r, &req) {
		return
	}
	if err := req.check(); err != nil {
		reply(w, nil, err)
		return
	}
	a, err := n.Ask(r.Context(), req)
	reply(w, a, err)
}

// Ask has the daemon ask a peer. The error wraps ErrNotFound if the address is no peer's that it can ask.
func (c *Client) Ask(ctx context.Context, r AskRequest) (a Asked, err error) {
	return a, c.Do(ctx, http.MethodPost, "/v1/ask", r, &a)
}
