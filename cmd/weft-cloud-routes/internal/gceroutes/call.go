package gceroutes

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"weft/cmd/weft-cloud-routes/internal/table"
)

const (
	answerWithin = 20 * time.Second
	maxAnswer    = 64 << 20 // bytes
)

// refusal is an answer that is an error (google.rpc's older form, which Compute has).
type refusal struct {
	status          int
	reason, message string
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.reason, r.message) }

func (r *refusal) throttled() bool {
	return r.status == http.StatusTooManyRequests ||
		slices.Contains([]string{"rateLimitExceeded", "userRateLimitExceeded"}, r.reason)
}

func (r *refusal) full() bool {
	return !r.throttled() && slices.Contains([]string{"quotaExceeded", "limitExceeded", "QUOTA_EXCEEDED",
		"LIMIT_EXCEEDED"}, r.reason)
}

// answer is what kind of an answer it is.
func (r *refusal) answer() table.Answer {
	switch {
	case r.throttled():
		return table.Throttled
	case r.status == http.StatusUnauthorized, r.status == http.StatusForbidden && !r.full():
		return table.Forbidden
	case r.status < http.StatusInternalServerError:
		return table.Refused
	}
	return table.Failed
}

// call makes a call, several times if need be, and decodes its answer into out. name is what counts it, and
// is the permission that it takes. All calls may be made twice: what is created has a name, and requests that
// change something have an id.
func (c *cloud) call(ctx context.Context, name, method, path string, query url.Values, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	if method != http.MethodGet {
		query = url.Values{"requestId": {requestID()}}
	}
	return c.o.Call(ctx, name, name, func() (table.Answer, error) {
		err := c.try(ctx, method, path+"?"+query.Encode(), body, out)
		var r *refusal
		switch {
		case err == nil:
			return table.OK, nil
		case errors.As(err, &r):
			return r.answer(), err
		}
		return table.Failed, err
	})
}

// try makes a call once.
func (c *cloud) try(ctx context.Context, method, path string, body []byte, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // nothing is lost with it
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return readRefusal(resp.StatusCode, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("its answer is not the JSON that it should be: %w", err)
	}
	return nil
}

func readRefusal(status int, b []byte) *refusal {
	var e struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	r := &refusal{status: status, reason: http.StatusText(status)}
	if json.Unmarshal(b, &e) == nil {
		r.message = e.Error.Message
		if len(e.Error.Errors) > 0 {
			r.reason = e.Error.Errors[0].Reason
		}
	}
	return r
}

// requestID is a random UUID (RFC 9562, section 5.4).
func requestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
