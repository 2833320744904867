package load

import (
	"context"
	"errors"
	"time"

	"weft/test/lab/probe"
)

// Flow is a sender and a receiver of datagrams in this process. It belongs to one goroutine.
type Flow struct {
	sender   *Sender
	receiver *Receiver
	tag      uint64
}

// NewFlow opens both ends. The caller closes it.
func NewFlow(from, to probe.Endpoint, t Traffic, mode ReceiveMode) (*Flow, error) {
	r, err := NewReceiver(to, 0, mode, t.Largest())
	if err != nil {
		return nil, err
	}
	s, err := NewSender(from, r.Addr(), t)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return &Flow{sender: s, receiver: r}, nil
}

// Close frees the sockets and returns the receiver's error.
func (f *Flow) Close() error { return errors.Join(f.sender.Close(), f.receiver.Close()) }

// Trial sends at rate packets a second for a duration, and as fast as it can if rate is 0.
// When it returns, none of its datagrams is under way any more.
func (f *Flow) Trial(ctx context.Context, rate float64, last time.Duration) (Trial, error) {
	f.tag++
	f.receiver.Expect(f.tag)
	t, err := f.sender.Send(ctx, f.tag, rate, last)
	if err != nil {
		return t, err
	}
	if err := sleep(ctx, grace); err != nil {
		return t, err
	}
	t.Received = f.receiver.Count()
	return t, f.receiver.Quiet(ctx)
}
