package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
)

// keepHistory begins to write what happens to dir, and returns a logger whose lines are part of that. ended
// says that the daemon ends, with err, and waits until everything is written.
func keepHistory(dir string, plain *slog.Logger) (history *events.Log, log *slog.Logger,
	ended func(err error)) {
	history = events.NewLog(dir)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		history.Run(ctx, func(err error) {
			if err != nil { // said to the log alone: the history cannot hold it
				plain.Warn("weft events will lack what happens now: the history cannot be written; nothing else "+
					"depends on it", "reason", err)
			} else {
				plain.Info("the history of events is written again")
			}
		})
	})
	return history, slog.New(events.NewHandler(plain.Handler(), history)), func(err error) {
		e := events.Event{Kind: events.Stopped, Level: "info", Message: "weftd ends, as asked"}
		if over := new(Yielded); errors.As(err, &over) {
			e.Message, err = "weftd ends: "+over.Error(), nil
		}
		if err != nil {
			e.Level, e.Message, e.Details = "error", "weftd ends", map[string]string{"reason": err.Error()}
		}
		history.Add(e)
		cancel()
		wg.Wait()
	}
}

// peersSingly is how many peers that come, go or change at once are an event each; more are one event
// together.
const peersSingly = 8

// tellPeers adds to the history which peers came, went and changed between two sets, which are sorted by
// subnets.
func (d *Daemon) tellPeers(before, now []lease.Record) {
	gone, came, changed := peerNews{kind: events.PeerGone}, peerNews{kind: events.PeerCome},
		peerNews{kind: events.PeerChanged}
	for len(before)+len(now) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = before[0].Subnets.Compare(now[0].Subnets)
		}
		switch {
		case order < 0:
			gone.add(&before[0], "")
			before = before[1:]
		case order > 0:
			came.add(&now[0], "")
			now = now[1:]
		default:
			if what := differs(&before[0], &now[0]); what != "" {
				changed.add(&now[0], what)
			}
			before, now = before[1:], now[1:]
		}
	}
	for _, n := range []*peerNews{&gone, &came, &changed} {
		for _, e := range n.events() {
			d.process.history.Add(e)
		}
	}
}

// peerNews is what happened to peers at once, of one kind.
type peerNews struct {
	kind  events.Kind
	count int
	first []*lease.Record // peersSingly at most
	what  []string        // of each of these
}

func (n *peerNews) add(r *lease.Record, what string) {
	if n.count++; len(n.first) < peersSingly {
		n.first, n.what = append(n.first, r), append(n.what, what)
	}
}

func (n *peerNews) events() (out []events.Event) {
	message := strings.ReplaceAll(string(n.kind), "_", " ")
	if n.count > len(n.first) {
		var names []string
		for _, r := range n.first {
			names = append(names, r.Called())
		}
		return []events.Event{{Kind: n.kind, Level: "info", Message: message, Details: map[string]string{
			"count": strconv.Itoa(n.count), "among": strings.Join(names, ", "),
		}}}
	}
	for i, r := range n.first {
		details := map[string]string{"peer": r.Called(), "id": r.Node(), "addr": text(r.Address()),
			"subnets": r.Subnets.String()}
		if n.what[i] != "" {
			details["changes"] = n.what[i]
		}
		out = append(out, events.Event{Kind: n.kind, Level: "info", Message: message, Details: details})
	}
	return out
}

// differs says what has become another in a peer's record; "" if that is nothing that matters to packets or
// people.
func differs(a, b *lease.Record) string {
	if a.Attrs.Equal(b.Attrs) && a.Name() == b.Name() {
		return ""
	}
	var out []string
	say := func(what, before, now string) {
		if before != now {
			out = append(out, fmt.Sprintf("%s %s, before %s", what, orNone(now), orNone(before)))
		}
	}
	say("name", a.Name(), b.Name())
	say("identity", a.Node(), b.Node())
	say("address", text(a.PublicIP), text(b.PublicIP))
	say("IPv6 address", text(a.PublicIPv6), text(b.PublicIPv6))
	say("backend", lease.BackendName(a.BackendType), lease.BackendName(b.BackendType))
	say("backend data", string(a.BackendData), string(b.BackendData))
	say("IPv6 backend data", string(a.BackendV6Data), string(b.BackendV6Data))
	if len(out) == 0 {
		out = append(out, "what it takes, its MTU or its further addresses")
	}
	return strings.Join(out, "; ")
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// renewals notices when our lease was renewed so late that little was missing until its end. Only observe
// uses it.
type renewals struct{ expires, seen time.Time }

// tell logs a late renewal. margin is how long before the end the lease should have been renewed.
func (r *renewals) tell(own lease.Record, margin time.Duration, log *slog.Logger) {
	now := time.Now()
	left := r.expires.Sub(r.seen)
	if !r.expires.IsZero() && own.Expires.After(r.expires.Add(time.Second)) && left < margin*3/4 {
		log.Warn("the lease was renewed late", "event", events.LeaseLate, "subnets", own.Subnets.String(), "left",
			max(0, left).Round(time.Second), "margin", margin)
	}
	r.expires, r.seen = own.Expires, now
}
