package sniff_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"weft/cmd/internal/pcapfilter"
	"weft/cmd/weftd/internal/sniff"
	"weft/test/await"
	"weft/test/netns"
)

// ends are two hosts at a wire, each with a socket at port 9 of its address.
type ends struct {
	ns   [2]*netns.Namespace
	conn [2]*net.UDPConn
}

const device = "eth0"

func wire(t *testing.T) *ends {
	t.Helper()
	netns.Need(t)
	e := &ends{}
	for i, name := range []string{"near", "far"} {
		ns := netns.New(t, name)
		e.ns[i] = ns
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.ns[0].Netlink().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: device,
		PeerNamespace: netlink.NsFd(e.ns[1].FD())}))
	for i, ns := range e.ns {
		link, err := ns.Netlink().LinkByName(device)
		must(err)
		address, err := netlink.ParseAddr(at(i).String() + "/24")
		must(err)
		must(ns.Netlink().AddrAdd(link, address))
		must(ns.Netlink().LinkSetUp(link))
	}
	for i, ns := range e.ns {
		must(ns.Do(func() (err error) {
			e.conn[i], err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at(i), 9)))
			return err
		}))
		t.Cleanup(func() { _ = e.conn[i].Close() })
	}
	// Until the kernel has seen the carrier and knows the neighbour it drops what is too much, before a tap sees
	// it.
	await.OK(t, "the far end hears", func() error {
		e.send(t, 0, 9, nil)
		must(e.conn[1].SetReadDeadline(time.Now().Add(100 * time.Millisecond)))
		_, _, err := e.conn[1].ReadFromUDPAddrPort(make([]byte, 10))
		return err
	})
	return e
}

// at is the address of an end.
func at(end int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(end + 1)}) }

// send has an end send a datagram to a port of the other.
func (e *ends) send(t *testing.T, from int, port uint16, payload []byte) {
	t.Helper()
	if _, err := e.conn[from].WriteToUDPAddrPort(payload, netip.AddrPortFrom(at(1-from), port)); err != nil {
		t.Fatal(err)
	}
}

// tap opens one at the near end.
func (e *ends) tap(t *testing.T, filter string, snapLen int) *sniff.Tap {
	t.Helper()
	f, err := pcapfilter.Compile(filter)
	if err != nil {
		t.Fatal(err)
	}
	program, err := f.Program()
	if err != nil {
		t.Fatal(err)
	}
	var tap *sniff.Tap
	if err := e.ns[0].Do(func() (err error) { tap, err = sniff.Open(device, program, snapLen); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tap.Close() })
	return tap
}

// TestTapShowsWhatPasses sends both ways, and sees what the filter lets through, with its way, from the IP
// header on, cut to the length that was asked for.
func TestTapShowsWhatPasses(t *testing.T) {
	e := wire(t)
	whole, short := e.tap(t, "udp dst port 9", 2000), e.tap(t, "src host 192.0.2.2 and udp dst port 9", 40)
	payload := bytes.Repeat([]byte("weft"), 300)
	for range 2 {
		e.send(t, 0, 10, payload) // not for the filters
		e.send(t, 0, 9, payload)
		e.send(t, 1, 9, payload)
	}
	for name, tt := range map[string]struct {
		tap     *sniff.Tap
		n, data int
	}{"all": {whole, 4, 1228}, "from the other, cut": {short, 2, 40}} {
		var got []sniff.Packet
		await.True(t, name, func() bool {
			p, ok, err := tt.tap.Next()
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				p.Data = bytes.Clone(p.Data)
				got = append(got, p)
			}
			return len(got) == tt.n
		})
		out := 0
		for _, p := range got {
			if p.Outbound {
				out++
			}
			if p.Length != 1228 || len(p.Data) != tt.data || p.Data[0] != 0x45 || (p.Data[15] == 1) != p.Outbound ||
				p.Time.IsZero() {
				t.Errorf("%s: outbound %v, %d of %d bytes: %x", name, p.Outbound, len(p.Data), p.Length, p.Data[:20])
			}
			if tt.data == 1228 && !bytes.Equal(p.Data[28:], payload) {
				t.Errorf("%s: another payload", name)
			}
		}
		if name == "all" && out != 2 || name != "all" && out != 0 {
			t.Errorf("%s: %d of %d are outbound", name, out, len(got))
		}
		if _, more, err := tt.tap.Next(); more || err != nil {
			t.Errorf("%s: one more packet, %v", name, err)
		}
		if n := tt.tap.Missed(); n != 0 {
			t.Errorf("%s: %d missed", name, n)
		}
	}
}

// TestTapCountsWhatItMisses has nobody read until the socket is full: packets pass all the same, and each is
// read or counted.
func TestTapCountsWhatItMisses(t *testing.T) {
	e := wire(t)
	tap := e.tap(t, "udp dst port 10 and src host 192.0.2.1", 100)
	const many = 20000
	payload := make([]byte, 1000)
	for range many {
		e.send(t, 0, 10, payload)
	}
	read := uint64(0)
	await.True(t, "all that was kept is read", func() bool {
		for {
			_, ok, err := tap.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return read+tap.Missed() == many
			}
			read++
		}
	})
	if missed := tap.Missed(); read == 0 || missed == 0 {
		t.Errorf("%d read and %d missed of %d", read, missed, many)
	}
}

// TestTapEndsWithItsDevice: the reader is told, and a device that is not there is an error that names it.
func TestTapEndsWithItsDevice(t *testing.T) {
	e := wire(t)
	tap := e.tap(t, "", 100)
	link, err := e.ns[0].Netlink().LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ns[0].Netlink().LinkDel(link); err != nil {
		t.Fatal(err)
	}
	await.True(t, "an error", func() bool { _, _, err := tap.Next(); return err != nil })
	err = e.ns[0].Do(func() error { _, err := sniff.Open(device, nil, 100); return err })
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("capture on "+device)) {
		t.Errorf("a device that is gone: %v", err)
	}
}
