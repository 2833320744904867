package probe

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"
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
			s.close()
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

// A device that was known by another name, as one that was renamed, or made with the index of one that is gone, is found.
func TestDevicesAreFoundByTheNamesThatTheyHave(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	do := func(f func() error) error { asked++; return f() }
	d := deviceNames{names: map[int]string{lo.Index: "was"}, read: time.Now().Add(-time.Hour)}
	if !d.have(lo.Index, []string{"lo"}, do) || !d.have(lo.Index, []string{"lo"}, do) {
		t.Error("lo is not found")
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
