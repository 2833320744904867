package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// CaptureRequest asks for a stream of packets.
type CaptureRequest struct {
	// Inner packets are those that were handed on, Dropped those that were not, Outer the datagrams on the underlay.
	Inner   bool `json:"inner,omitempty"`
	Outer   bool `json:"outer,omitempty"`
	Dropped bool `json:"dropped,omitempty"`
	// Peer is the name, identity, address or subnet of the node whose packets are wanted; "" for all.
	Peer string `json:"peer,omitempty"`
	// Filter is in the language of the package pcapfilter.
	Filter string `json:"filter,omitempty"`
	// Count ends the stream after so many packets, Seconds after that time; 0 for neither.
	Count   uint64  `json:"count,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// SnapLen is how many bytes of a packet are wanted; 0 for all.
	SnapLen int `json:"snapLen,omitempty"`
}

// CaptureNote is what a capture says about one packet, in the packet's comments.
type CaptureNote struct {
	// Outbound packets come from this node. Peer and Address are the other node's, if one is known.
	Outbound bool
	Peer     string
	Address  netip.Addr
	// Dropped is the reason why the packet went no further, and Admit the setting that would let it pass.
	Dropped, Admit string
	// Segments is how many packets of up to SegmentSize bytes of payload a superpacket stands for.
	Segments, SegmentSize int
}

// Comments returns the note in words, which ParseComments reads.
func (n CaptureNote) Comments() (l []string) {
	if n.Dropped != "" {
		s := "dropped: " + n.Dropped
		if n.Admit != "" {
			s += "; would be admitted by " + n.Admit
		}
		l = append(l, s)
	}
	if n.Address.IsValid() {
		way := "from"
		if n.Outbound {
			way = "to"
		}
		l = append(l, strings.TrimSpace(fmt.Sprintf("%s %s", way, n.Peer))+" ("+n.Address.String()+")")
	}
	if n.Segments > 0 {
		l = append(l, fmt.Sprintf("superpacket: %d packets of up to %d bytes of payload", n.Segments, n.SegmentSize))
	}
	return l
}

// ParseComments reads what Comments returned; comments of others are passed over.
func ParseComments(comments []string) (n CaptureNote) {
	super := regexp.MustCompile(`^superpacket: (\d+) packets of up to (\d+) bytes of payload$`)
	way := regexp.MustCompile(`^(to|from) (?:(.*) )?\(([^()]*)\)$`)
	for _, c := range comments {
		if rest, ok := strings.CutPrefix(c, "dropped: "); ok {
			n.Dropped, n.Admit, _ = strings.Cut(rest, "; would be admitted by ")
		} else if m := super.FindStringSubmatch(c); m != nil {
			n.Segments, _ = strconv.Atoi(m[1])
			n.SegmentSize, _ = strconv.Atoi(m[2])
		} else if m := way.FindStringSubmatch(c); m != nil {
			n.Outbound, n.Peer = m[1] == "to", m[2]
			n.Address, _ = netip.ParseAddr(m[3])
		}
	}
	return n
}

// stallTime is how long a reader of a stream may take no byte before the stream ends. Until then it only misses packets.
const stallTime = 10 * time.Minute

// stream is what a Capturer writes a capture to: the answer begins with the first byte.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func (s *stream) Write(b []byte) (int, error) {
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", "application/x-pcapng")
		s.w.Header().Set("Trailer", endedTrailer)
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(stallTime)) // else the server's, which is for answers
	return s.w.Write(b)
}

// Flush hands on what was written.
func (s *stream) Flush() { _ = s.control.Flush() } // a client that went away is noticed by Write

func serveCapture(n Capturer, w http.ResponseWriter, r *http.Request) {
	if err := mayChange(r.Context()); err != nil { // it changes nothing, and shows what pods say to each other
		reply(w, nil, err)
		return
	}
	var req CaptureRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	d.DisallowUnknownFields()
	if err := d.Decode(&req); err != nil {
		replyError(w, http.StatusBadRequest, fmt.Errorf("request: %w", err))
		return
	}
	s := &stream{w: w, control: http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{}) // it was for the request, and the client may look for hours
	switch err := n.Capture(r.Context(), req, s); {
	case err == nil:
	case s.began:
		w.Header().Set(endedTrailer, strings.Join(strings.Fields(err.Error()), " "))
	default:
		reply(w, nil, err)
	}
}

// endedTrailer says, behind a stream of packets, why it ended before its time.
const endedTrailer = "Weft-Ended"

// captured is the body of an answer with a stream. It ends with the daemon's reason, if there is one, in place of io.EOF.
type captured struct{ resp *http.Response }

func (c captured) Close() error { return c.resp.Body.Close() }

// Read implements io.Reader.
func (c captured) Read(b []byte) (int, error) {
	n, err := c.resp.Body.Read(b)
	if why := c.resp.Trailer.Get(endedTrailer); errors.Is(err, io.EOF) && why != "" {
		err = remote{why, nil}
	}
	return n, err
}

// Capture asks for packets, and returns the stream of them in the format pcapng; the caller closes it. The error wraps
// ErrNotFound or ErrRefused if the daemon said so. At its end the stream has io.EOF, or why the daemon had to end it.
func (c *Client) Capture(ctx context.Context, r CaptureRequest) (io.ReadCloser, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://weftd/v1/capture", strings.NewReader(string(body)))
	if err != nil {
		return nil, fmt.Errorf("ask weftd: %w", err)
	}
	if err := c.do(ctx, http.MethodHead, "/", nil, nil); err != nil {
		return nil, err
	}
	var l listener
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ResponseHeaderTimeout: wholeTimeout,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, c.socket) },
	}}
	resp, err := client.Do(req)
	switch {
	case err != nil && ctx.Err() == nil && timedOut(err):
		return nil, l.stuck(c.socket)
	case err != nil:
		return nil, c.explain(err)
	case resp.StatusCode == http.StatusNotFound && resp.Header.Get("Content-Type") != "application/json":
		_ = resp.Body.Close()
		return nil, fmt.Errorf("this weftd is older than weft capture: %w", ErrRefused)
	case resp.StatusCode != http.StatusOK:
		defer func() { _ = resp.Body.Close() }()
		return nil, refusal(resp)
	}
	return captured{resp}, nil
}
