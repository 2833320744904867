package tunnel_test

import (
	"context"
	"net/netip"
	"testing"

	"weft/encap"
	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// TestPause pauses and resumes an engine under a flow: in a pause nothing is read, and all of it comes
// afterwards, in order.
func TestPause(t *testing.T) {
	n := start(t, spec(), tunnel.Config{Workers: 2})
	p := udp4(t, "10.1.1.5", "10.1.2.5", 32, nil)
	for round := range 100 {
		n.Pause()
		n.Pause() // is one
		reads := n.host.Reads.Load()
		for range 10 {
			if !n.host.Inject(tunneltest.Datagram{Data: p}) {
				t.Fatal("the port is full")
			}
		}
		if got := n.host.Reads.Load(); got != reads {
			t.Fatalf("round %d: a paused engine has read", round)
		}
		n.Resume()
		for range 10 {
			if _, ok := n.wire.Next(within); !ok {
				t.Fatalf("round %d: a packet is missing", round)
			}
		}
	}
}

// TestPauseAndEnd ends engines that are paused, or never run.
func TestPauseAndEnd(t *testing.T) {
	for _, begun := range []bool{false, true} {
		e, err := tunnel.New(tunnel.Config{Format: encap.FormatIP, Port: udpPort, Workers: 2, Paused: begun})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		host := memory(t, netip.AddrPort{})
		if _, err := e.Attach(host, tunnel.RoleHost); err != nil {
			t.Fatal(err)
		}
		e.Pause() // before Run
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		e.Pause()
		if !host.Inject(tunneltest.Datagram{Data: []byte{1}}) || host.Reads.Load() > 0 {
			t.Error("a paused engine has read")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		e.Pause() // after it
		e.Resume()
	}
}
