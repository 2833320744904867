package port

import (
	"bytes"
	"testing"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// FuzzTakeFrame gives a port of path raw a virtio-net header and a frame that anybody may have
// written. Nothing panics, all that is looked at is of this frame, and what is taken says so.
func FuzzTakeFrame(f *testing.F) {
	inner4 := tcp4(3000)
	inner4[20+13] = 0x18
	reverse := func(b []byte) []byte { // as it comes in
		b = bytes.Clone(b)
		copy(b[12:16], []byte{10, 1, 2, 7})
		copy(b[16:20], []byte{10, 1, 1, 5})
		return b
	}
	add := func(six bool, h encap.VNetHdr, frame []byte) {
		b := make([]byte, encap.VNetHdrLen)
		h.Put(b)
		f.Add(six, append(b, frame...))
	}
	for six := range 2 {
		at := uint16(frameHead(six) + 20)
		pods := ipv4Packet("10.1.2.7", "10.1.1.5", 300)
		super := frameOf(f, six, encap.ECT0, reverse(inner4))
		add(six == 1, encap.VNetHdr{}, frameOf(f, six, encap.CE, pods))
		add(six == 1, encap.VNetHdr{}, frameOf(f, six, 0, append(bytes.Repeat(pods, 4), 0, 0, 0)))
		add(six == 1, encap.VNetHdr{GSOType: encap.VNetGSOUDPL4, GSOSize: 300},
			frameOf(f, six, 0, bytes.Repeat(pods, 5)))
		add(six == 1, encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: at, CsumOffset: 16,
			GSOType: encap.VNetGSOTCPv4, GSOSize: 1000}, super)
		add(six == 1, encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: at, CsumOffset: 6,
			GSOType: encap.VNetGSOUDPL4, GSOSize: 10}, super)
		add(six == 1, encap.VNetHdr{Flags: encap.VNetNeedsCsum, CsumStart: at, CsumOffset: 16}, super)
	}
	rings := [2]*Ring{NewRing(), NewRing()}
	f.Fuzz(func(t *testing.T, six bool, b []byte) {
		family := 0
		if six {
			family = 1
		}
		if len(b) < encap.VNetHdrLen || len(b) > MaxPacket {
			return
		}
		h, err := encap.ParseVNetHdr(b)
		if err != nil {
			t.Fatal(err)
		}
		frame := b[encap.VNetHdrLen:]
		ring := rings[family]
		ring.Reset(0)
		takeInto(ring, family, h, frame)
		checkTaken(t, ring, h, frame, family)
	})
}

// checkTaken sees that what a frame became is of the frame, and is what its headers say.
func checkTaken(t *testing.T, ring *Ring, h encap.VNetHdr, frame []byte, six int) {
	t.Helper()
	f, err := encap.ParseFrame(frame)
	for i := range ring.Batch() {
		p := &ring.slots[i]
		if !p.Outer.IsValid() { // refused
			if len(p.Bytes()) != 0 || ring.n != 1 || p.SegSize != 0 || p.Partial {
				t.Fatalf("refused, and %+v", p)
			}
			continue
		}
		if err != nil || p.Outer != f.Src || p.OuterECN != f.ECN || f.From != frameHead(six) {
			t.Fatalf("from %v: %v of a frame that is %+v, %v", p.Outer, p.OuterECN, f, err)
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes())))
		first := uintptr(unsafe.Pointer(unsafe.SliceData(ring.arena))) + Headroom
		if at < first || at+uintptr(len(p.Bytes())) > first+uintptr(f.To-f.From) {
			t.Fatalf("packet %d of %d bytes lies outside of the datagram's %d", i, len(p.Bytes()), f.To-f.From)
		}
		if !bytes.Equal(p.Bytes(), frame[f.From+int(at-first):][:len(p.Bytes())]) {
			t.Fatalf("packet %d is not what the frame held", i)
		}
		if p.SegSize > 0 && !p.Partial || p.Partial && h.Flags&encap.VNetNeedsCsum == 0 || p.Segments != 1 {
			t.Fatalf("packet %d: %+v", i, p)
		}
	}
	if ring.n > MaxRun || ring.reads != 1 {
		t.Fatalf("%d packets in %d reads", ring.n, ring.reads)
	}
}

// FuzzFrameFilter compares the filter with what is wanted of it, and with the parser of what it
// passes: they may differ about what is broken, but not about where the datagram is for.
func FuzzFrameFilter(f *testing.F) {
	for six := range 2 {
		b := frameOf(f, six, 0, []byte("weft"))
		f.Add(b)
		f.Add(b[:frameHead(six)])
	}
	vms := [2]*bpf.VM{filterVM(f, ours[0], unix.PACKET_HOST, false),
		filterVM(f, ours[1], unix.PACKET_HOST, false)}
	f.Fuzz(func(t *testing.T, b []byte) {
		for six, local := range ours {
			got := passes(t, vms[six], b)
			if want := wanted(b, local); got != want {
				t.Fatalf("for %v, passes: %t, want %t", local, got, want)
			}
			p, err := encap.ParseFrame(b)
			if err != nil {
				continue
			}
			if here := p.Dst == local && p.From == frameHead(six); got != here {
				t.Fatalf("for %v, passes: %t, and the frame is %+v", local, got, p)
			}
		}
	})
}
