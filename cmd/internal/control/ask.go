package control

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"
)

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
	return a, c.do(ctx, http.MethodPost, "/v1/ask", r, &a)
}
