package tunnel

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// heard counts lines, and adds up what they say was withheld.
type heard struct{ lines, withheld int }

func (*heard) Enabled(context.Context, slog.Level) bool { return true }
func (h *heard) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *heard) WithGroup(string) slog.Handler          { return h }
func (h *heard) Handle(_ context.Context, r slog.Record) error {
	h.lines++
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "left_out" {
			h.withheld += int(a.Value.Uint64())
		}
		return true
	})
	return nil
}

// heardWorker is a worker of an engine that does not run, with a table of s, and what it says.
func heardWorker(t *testing.T, s Spec) (*worker, *heard) {
	t.Helper()
	h := &heard{}
	e, err := New(Config{Format: encap.FormatIP, Port: 8285, Workers: 1, Logger: slog.New(h)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.close() })
	w := e.workers[0]
	if w.table, err = NewTable(encap.FormatIP, s); err != nil {
		t.Fatal(err)
	}
	return w, h
}

// ICMP from a thousand peers is learnt from and hardly written about.
func TestPathMTUsOfManyPeersAreFewLines(t *testing.T) {
	s := testSpec()
	s.Peers = nil
	for i := range 1000 {
		s.Peers = append(s.Peers, PeerSpec{
			Name: fmt.Sprint("node-", i), Addr: netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2 + byte(i>>8), byte(i), 0}), 24)},
		})
	}
	w, h := heardWorker(t, s)
	const rounds = 60
	for i := range rounds { // each peer's path is lowered once, in one moment, and again after its life
		w.now += int64(time.Minute + time.Second)
		for _, p := range s.Peers {
			w.onSendError(port.SendError{Dst: p.Addr, TooBig: true, MTU: 1400 - i})
			if got := w.table.senders[p.Addr].state.path.Get(w.now); got != 1400-i {
				t.Fatalf("%s: path MTU %d was not learnt", p.Name, got)
			}
		}
	}
	if most := rounds * logBurst; h.lines > most || h.lines < logBurst {
		t.Errorf("%d lines about %d messages, want at most %d", h.lines, rounds*len(s.Peers), most)
	}
	if want := (rounds - 1) * (len(s.Peers) - logBurst); h.withheld != want {
		t.Errorf("%d are said to be left out, want %d", h.withheld, want)
	}
}

func TestBucket(t *testing.T) {
	var b rateLimit
	now := int64(time.Hour)
	for i := range icmpBurst {
		if !b.allow(now) {
			t.Fatalf("token %d refused, want a burst of %d", i, icmpBurst)
		}
	}
	if b.allow(now) {
		t.Fatal("a token beyond the burst was given")
	}
	now += int64(time.Second) / 2
	got := 0
	for b.allow(now) {
		got++
	}
	if got != icmpRate/2 {
		t.Errorf("%d tokens after half a second, want %d", got, icmpRate/2)
	}
	if b.allow(now - int64(time.Minute)) {
		t.Error("a clock that goes back gave a token")
	}
}
