package probe

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/netns"
)

// What was wrong with an address is no fault of the one that the node has now.
func TestFaultsAreThoseOfTheAddressesThatThereAre(t *testing.T) {
	other, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 11)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	p := New(Config{Port: uint16(other.LocalAddr().(*net.UDPAddr).Port), Logger: slog.New(slog.DiscardHandler)})
	defer func() {
		for _, s := range p.udp {
			s.Close()
		}
		p.readers.Wait()
	}()
	p.Update(Here{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.11")}}, nil)
	if got := p.Faults(); len(got) != 1 || p.Port() != 0 {
		t.Fatalf("the port is another's: got %q, port %d", got, p.Port())
	}
	p.Update(Here{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.12")}}, nil)
	if got := p.Faults(); len(got) != 0 || p.Port() == 0 {
		t.Errorf("at another address: got %q, port %d", got, p.Port())
	}
}

// A device that was known by another name, as one that was renamed, or made with the index of one that is
// gone, is found.
func TestDevicesAreFoundByTheNamesThatTheyHave(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	do := func(f func() error) error { asked++; return f() }
	d := deviceNames{names: map[int]string{lo.Index: "was"}, read: time.Now().Add(-time.Hour)}
	for range 2 {
		if !d.have(lo.Index, []string{"lo"}, do) {
			t.Error("lo is not found")
		}
	}
	for range 10 {
		if d.have(lo.Index, []string{"eth0"}, do) {
			t.Error("lo is found as eth0")
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Where another program has the port, peers of weft are asked by ICMP, as others are: that none of them
// answers must not be said of a node that cannot ask.
func TestWithoutItsPortANodeAsksByICMP(t *testing.T) {
	netns.Need(t) // raw sockets
	other, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 13)})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Port: uint16(other.LocalAddr().(*net.UDPAddr).Port), Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); _ = p.Run(ctx) }()
	here, ways := Here{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.13")}},
		[]Way{{Peer: "b", Addr: netip.MustParseAddr("127.0.0.14"), Port: DefaultPort}}
	p.Update(here, ways)
	if got := p.States(); len(got) != 1 || got[0].Port != 0 {
		t.Errorf("without the port: %+v", got)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	p.Update(here, ways)
	if got := p.States(); len(got) != 1 || got[0].Port != DefaultPort || len(p.Faults()) > 0 {
		t.Errorf("with it: %+v, %q", got, p.Faults())
	}
}

// Who cannot be asked by ICMP, since that is forbidden to weftd, is not said to be silent, and is asked once
// it is allowed.
func TestWithoutTheRightNobodyIsAskedByICMP(t *testing.T) {
	netns.Need(t) // raw sockets
	forbidden := false
	p := New(Config{Logger: slog.New(slog.DiscardHandler), Do: func(f func() error) error {
		if forbidden {
			return unix.EPERM
		}
		return f()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	defer func() { cancel(); _ = p.Run(ctx) }()
	here := Here{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.15")}}
	ways := []Way{{Peer: "b", Addr: netip.MustParseAddr("127.0.0.16"), Port: DefaultPort},
		{Peer: "c", Addr: netip.MustParseAddr("127.0.0.17")}}
	p.Update(here, nil)
	forbidden = true
	p.Update(here, ways)
	if got := p.States(); len(got) != 1 || got[0].Peer != "b" || len(p.Faults()) != 1 {
		t.Errorf("forbidden: %+v, %q", got, p.Faults())
	}
	forbidden = false
	p.Update(here, ways)
	if got := p.States(); len(got) != 2 || len(p.Faults()) > 0 {
		t.Errorf("allowed: %+v, %q", got, p.Faults())
	}
}

// Who asks out of turn hears from the peer, that nothing listens there, or that nobody is known at the
// address.
func TestAskHearsWhatBecomesOfItsQuestions(t *testing.T) {
	here, there := netip.MustParseAddr("127.0.0.31"), netip.MustParseAddr("127.0.0.32")
	const port = 28286
	run := func(own, other netip.Addr) (*Prober, func()) {
		p := New(Config{Port: port, Logger: slog.New(slog.DiscardHandler)})
		ctx, cancel := context.WithCancel(t.Context())
		p.Update(Here{Addrs: []netip.Addr{own}, Devices: []string{"lo"}},
			[]Way{{Peer: "p", Addr: other, Port: port, MTU: 1400}})
		return p, func() { cancel(); _ = p.Run(ctx) }
	}
	p, end := run(here, there)
	defer end()
	_, endOther := run(there, here)
	series := Series{Count: 3, Interval: time.Millisecond, Timeout: await.Patience}
	r, err := p.Ask(t.Context(), there, series)
	if err != nil || len(r.RTTs) != 3 || r.RTTs[0] <= 0 || r.RTTs[1] <= 0 || r.RTTs[2] <= 0 || r.Refused {
		t.Errorf("of a peer that answers: %+v, %v", r, err)
	}
	if s := p.States()[0]; s.Out.Lost > 0 || s.In.Lost > 0 {
		t.Errorf("the questions count as lost: %+v", s)
	}
	endOther()
	if r, err = p.Ask(t.Context(), there, series); err != nil || !r.Refused || r.RTTs[0] != 0 {
		t.Errorf("of a peer without weftd: %+v, %v", r, err)
	}
	if _, err = p.Ask(t.Context(), here, series); !errors.Is(err, ErrNotAsked) {
		t.Errorf("of an address that is no peer's: %v", err)
	}
	if len(p.askings) > 0 {
		t.Errorf("%d series are kept", len(p.askings))
	}
}

// Who has no peers has gathered at once, and who ends meanwhile does not wait.
func TestMatrixEnds(t *testing.T) {
	p := New(Config{Port: 18286, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	here := Here{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.18")}}
	p.Update(here, nil)
	if m, err := p.Matrix(ctx); err != nil || len(m.Rows) != 1 || !m.Full {
		t.Errorf("without peers: %+v, %v", m, err)
	}
	p.Update(here, []Way{{Peer: "b", Addr: netip.MustParseAddr("127.0.0.19"), Port: 18287}})
	soon, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	if _, err := p.Matrix(soon); err == nil {
		t.Error("it waits longer than it may")
	}
	failed := make(chan error)
	go func() { _, err := p.Matrix(ctx); failed <- err }()
	cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("it goes on")
	}
	if _, err := p.Matrix(t.Context()); !errors.Is(err, ErrEnded) {
		t.Errorf("afterwards: %v", err)
	}
}
