package plane

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/test/netns"
	"weft/tunnel"
	"weft/tunnel/port"
)

// holder is Options.Keep as custody does it.
type holder struct {
	mu    sync.Mutex
	items map[string]port.Kept
}

func (h *holder) keep(name string, k *port.Kept) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.items[name]; ok {
		was.Close()
		delete(h.items, name)
	}
	if k == nil {
		return
	}
	if d, err := k.Dup(); err == nil {
		h.items[name] = d
	}
}

// inherited is what the next data plane gets.
func (h *holder) inherited(t *testing.T) map[string]port.Kept {
	t.Helper()
	all := map[string]port.Kept{}
	for name, k := range h.items {
		d, err := k.Dup()
		if err != nil {
			t.Fatal(err)
		}
		all[name] = d
	}
	return all
}

// heldPlane is a data plane of a path whose ports a holder keeps.
func heldPlane(t *testing.T, k *kernel.Kernel, path tunnel.Path, h *holder) *Plane {
	t.Helper()
	p, err := New(k, Options{
		Format: encap.FormatIP, Port: encap.PortIP, Path: path, Logger: slog.New(slog.DiscardHandler),
		Nudge:     func(kernel.Change) {},
		Inherited: h.inherited(t), Keep: h.keep,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// opened opens all ports of p.
func opened(p *Plane) error {
	return errors.Join(p.Listen(addr("192.0.2.1"), netip.Addr{}, "eth0", nil),
		p.EnsureTUN([]netip.Prefix{pfx("10.5.0.0/16")}, nil))
}

// A data plane that ends while it takes ports up leaves nothing with the holder: what is there would be in
// the way of the next one, which has the same TUN and the same port.
func TestNothingIsKeptOfAPlaneThatHasEnded(t *testing.T) {
	for _, path := range []tunnel.Path{tunnel.PathPortable, tunnel.PathSocket, tunnel.PathRaw} {
		t.Run(path.String(), func(t *testing.T) {
			k, h := inNamespace(t), &holder{items: map[string]port.Kept{}}
			netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
			over, cancel := context.WithCancel(t.Context())
			cancel()
			first := heldPlane(t, k, path, h)
			if err := opened(first); err != nil {
				t.Fatal(err)
			}
			first.Abandon()
			if err := errors.Join(first.Run(over), first.Close()); err != nil || len(h.items) != 2 {
				t.Fatalf("%d ports are kept: %v", len(h.items), err)
			}
			second := heldPlane(t, k, path, h)
			if err := second.Run(over); err != nil {
				t.Fatal(err)
			}
			if err := opened(second); err == nil {
				t.Error("a data plane that has ended took its ports up")
			}
			if err := second.Close(); err != nil || len(h.items) != 0 {
				t.Errorf("%d ports are kept: %v", len(h.items), err)
			}
			third := heldPlane(t, k, path, h)
			if err := opened(third); err != nil {
				t.Error(err)
			}
			if err := errors.Join(third.Run(over), third.Close()); err != nil || len(h.items) != 0 {
				t.Errorf("%d ports are kept: %v", len(h.items), err)
			}
		})
	}
}

// TestAnotherPathIsNotTakenOver: ports that were kept for another path than the one that is wanted now are
// made anew.
func TestAnotherPathIsNotTakenOver(t *testing.T) {
	k, h := inNamespace(t), &holder{items: map[string]port.Kept{}}
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	first := heldPlane(t, k, tunnel.PathRaw, h)
	if err := opened(first); err != nil {
		t.Fatal(err)
	}
	first.Abandon()
	if err := errors.Join(first.Run(over), first.Close()); err != nil {
		t.Fatal(err)
	}
	next := heldPlane(t, k, tunnel.PathPortable, h)
	if err := opened(next); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, k := range h.items {
		kinds[k.Kind]++
	}
	if len(kinds) != 2 || kinds[port.KindTUN] != 1 || kinds[port.KindUDP] != 1 {
		t.Errorf("kept of path portable: %v", kinds)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
}
