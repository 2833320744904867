package remote

import (
	"context"
	"errors"
	"time"

	"weft/bench/load"
	"weft/bench/plan"
)

// grace is how long after the last datagram was sent one that arrives still counts as delivered. If the server
// counts, it is half a round trip longer, since the client has to ask for the count.
const grace = 10 * time.Millisecond

// Open implements plan.Ends.
func (e *ends) Open(ctx context.Context, t load.Traffic, mode load.ReceiveMode) (plan.Flow, error) {
	if e.back {
		r, err := load.NewReceiver(e.here(), 0, mode, t.Largest())
		if err != nil {
			return nil, err
		}
		return &backward{e, t, r}, nil
	}
	if _, err := e.ask(ctx, request{Op: opOpen, Traffic: &t, Receive: mode}, 0); err != nil {
		return nil, err
	}
	s, err := load.NewSender(e.here(), e.server, t)
	if err != nil {
		_, closing := e.ask(ctx, request{Op: opClose}, 0)
		return nil, errors.Join(err, closing)
	}
	return &forward{e, s}, nil
}

// forward is a flow to the server.
type forward struct {
	*ends
	sender *load.Sender
}

func (f *forward) Trial(ctx context.Context, rate float64, last time.Duration) (t load.Trial, err error) {
	f.tag++
	if _, err := f.ask(ctx, request{Op: opExpect, Tag: f.tag}, 0); err != nil {
		return t, err
	}
	if t, err = f.sender.Send(ctx, f.tag, rate, last); err != nil {
		return t, err
	}
	if err := pause(ctx, grace); err != nil {
		return t, err
	}
	r, err := f.ask(ctx, request{Op: opCount}, 0)
	if err != nil {
		return t, err
	}
	t.Received = r.Count
	_, err = f.ask(ctx, request{Op: opQuiet}, time.Second)
	return t, err
}

func (f *forward) Close() error {
	_, err := f.ask(context.Background(), request{Op: opClose}, 0)
	return errors.Join(err, f.sender.Close())
}

// backward is a flow from the server.
type backward struct {
	*ends
	traffic  load.Traffic
	receiver *load.Receiver
}

func (f *backward) Trial(ctx context.Context, rate float64, last time.Duration) (t load.Trial, err error) {
	f.tag++
	f.receiver.Expect(f.tag)
	r, err := f.ask(ctx, request{
		Op: opSend, Tag: f.tag, Rate: rate, Milliseconds: max(last.Milliseconds(), 1), Traffic: &f.traffic, Port: f.receiver.Addr().Port(),
	}, last)
	if err != nil {
		return t, err
	}
	t.Sent, t.Elapsed = r.Count, time.Duration(r.Nanoseconds)
	if err := pause(ctx, grace); err != nil {
		return t, err
	}
	t.Received = f.receiver.Count()
	return t, f.receiver.Quiet(ctx)
}

func (f *backward) Close() error { return f.receiver.Close() }
