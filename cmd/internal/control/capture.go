package control

import (
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// CaptureRequest asks for a stream of packets.
type CaptureRequest struct {
	// Inner packets are those that were handed on, Dropped those that were not, Outer the datagrams on the
	// underlay.
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

// Captured is one value of the stream: a packet, or, without one, what was counted until then.
type Captured struct {
	Packet *CapturedPacket
	// Received packets were taken, and Missed would have been if the reader had been faster.
	Received, Missed uint64
}

// CapturedPacket is one packet, which begins with its IP header.
type CapturedPacket struct {
	Time time.Time
	// Outbound packets come from this node. Peer and Address are the other node's, if one is known.
	Outbound bool
	Peer     string
	Address  netip.Addr
	// Dropped is the reason why the packet went no further, and Admit the setting that would let it pass.
	Dropped, Admit string
	// Segments is how many packets of up to SegmentSize bytes of payload a superpacket stands for.
	Segments, SegmentSize int
	// Length is that of the packet in bytes. Data are the bytes of it that were kept.
	Length int
	Data   []byte
}

// stallTime is how long a reader of a stream may take no byte before the stream ends. Until then it only
// misses packets.
const stallTime = 10 * time.Minute

// captureType is the type of an answer with a stream: values of Captured, as encoding/gob has them.
const captureType = "application/x-gob"

// stream is what a Capturer writes a capture to: the answer begins with the first byte.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func (s *stream) Write(b []byte) (int, error) {
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", captureType)
		s.w.Header().Set("Trailer", endedTrailer)
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(stallTime)) // else the server's, which is for answers
	return s.w.Write(b)
}

// CaptureWriter takes a capture from one goroutine.
type CaptureWriter interface {
	// Write hands c to the reader, at the latest with the next Flush. It keeps nothing of c.
	Write(c Captured) error
	// Flush hands on what was written.
	Flush()
}

// captureWriter is the other end of a CaptureStream.
type captureWriter struct {
	s *stream
	e *gob.Encoder
}

func (w captureWriter) Write(c Captured) error { return w.e.Encode(c) }

// Flush implements CaptureWriter. Write notices a client that went away.
func (w captureWriter) Flush() { _ = w.s.control.Flush() }

func serveCapture(n Capturer, w http.ResponseWriter, r *http.Request) {
	var req CaptureRequest
	if !changeRequest(w, r, &req) { // it changes nothing, and shows what pods say to each other
		return
	}
	s := &stream{w: w, control: http.NewResponseController(w)}
	out := captureWriter{s, gob.NewEncoder(s)}
	_ = s.control.SetReadDeadline(time.Time{}) // it was for the request, and the client may look for hours
	switch err := n.Capture(r.Context(), req, out); {
	case err == nil:
	case s.began:
		w.Header().Set(endedTrailer, strings.Join(strings.Fields(err.Error()), " "))
	default:
		reply(w, nil, err)
	}
}

// endedTrailer says, behind a stream of packets, why it ended before its time.
const endedTrailer = "Weft-Ended"

// CaptureStream is what a reader has of a capture. It is for one goroutine.
type CaptureStream struct {
	resp *http.Response
	d    *gob.Decoder
}

// Next waits for the next value. The error is io.EOF at the end, or why the daemon had to end the stream.
func (c *CaptureStream) Next() (v Captured, err error) {
	err = c.d.Decode(&v)
	if why := c.resp.Trailer.Get(endedTrailer); errors.Is(err, io.EOF) && why != "" {
		err = errors.New(why)
	}
	return v, err
}

// Close ends the capture.
func (c *CaptureStream) Close() error { return c.resp.Body.Close() }

// Capture asks for packets, and returns the stream of them; the caller closes it.
func (c *Client) Capture(ctx context.Context, r CaptureRequest) (*CaptureStream, error) {
	resp, _, err := c.Stream(ctx, "/v1/capture", r, "")
	if err != nil {
		return nil, err
	}
	return &CaptureStream{resp, gob.NewDecoder(resp.Body)}, nil
}
