package tunnel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/gaissmai/bart"

	"weft/encap"
	"weft/tunnel/natflow"
	"weft/tunnel/port"
)

// newPodPath is newHotPath with two pods' ports.
func newPodPath(tb testing.TB, mtu int) (w *worker, a, b *attachedPort) {
	tb.Helper()
	w = newHotPath(tb, 3)
	podAt := func(s string) *attachedPort {
		x := &attachedPort{port: nullPort{}, role: RolePod, addrs: []netip.Addr{addr(s)}, super: supers(true),
			pod: new(pod)}
		if w.set.pods == nil {
			w.set.pods = new(bart.Table[*attachedPort])
		}
		w.set.pods.Insert(host(addr(s)), x)
		return x
	}
	a, b = podAt("10.1.1.5"), podAt("10.1.1.6")
	b.pod.mtu.Store(int64(mtu))
	w.from = a
	return w, a, b
}

// fillSuper puts superpackets with segments of mss bytes into the worker's ring, as a TUN's ReadBatch would.
func (w *worker) fillSuper(b []byte, mss int) int {
	w.ring.Reset(0)
	for p := w.ring.Slot(); p != nil; p = w.ring.Slot() {
		copy(p.Space(), b)
		w.ring.Commit(len(b))
		p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = mss, true, 20, encap.ChecksumOffsetTCP
	}
	return len(w.ring.Batch())
}

// tcpTo is a TCP packet from pod a to an address, with so much payload, and with or without DF.
func tcpTo(dst string, payload int, df bool) []byte {
	b := tcp4(payload)
	d := addr(dst).As4()
	copy(b[12:], []byte{10, 1, 1, 5})
	copy(b[16:], d[:])
	if b[6] &^= 0x40; df {
		b[6] |= 0x40
	}
	binary.BigEndian.PutUint16(b[10:], 0)
	// no ICMP error is about a packet with a wrong one
	binary.BigEndian.PutUint16(b[10:], encap.Checksum(b[:20]))
	return b
}

// keeper notes what is written to it.
type keeper struct {
	port.Port
	got []kept
}

type kept struct {
	segSize int
	partial bool
	ttl     byte
}

func (k *keeper) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, p := range ps {
		k.got = append(k.got, kept{p.SegSize, p.Partial, p.Bytes()[8]})
		p.Delivered()
	}
}

// TestHotPathOfPodsDoesNotAllocate has each way that a pod's packet takes, and those that end in a refusal.
func TestHotPathOfPodsDoesNotAllocate(t *testing.T) {
	w, a, b := newPodPath(t, 1000)
	noDF := ipv4Packet("10.1.1.5", "10.1.1.6", 1400)
	noDF[6] = 0
	peer := netip.MustParseAddrPort("192.0.2.2:8285")
	super := tcpTo("10.1.1.6", 9000, true)
	for name, tt := range map[string]struct {
		packet  []byte
		from    *attachedPort
		ingress bool
		mss     int
	}{
		"pod to pod":               {ipv4Packet("10.1.1.5", "10.1.1.6", 200), a, false, 0},
		"pod to peer":              {ipv4Packet("10.1.1.5", "10.1.2.7", 200), a, false, 0},
		"pod to host":              {ipv4Packet("10.1.1.5", "198.51.100.1", 200), a, false, 0},
		"peer to pod":              {ipv4Packet("10.1.2.7", "10.1.1.5", 200), w.set.under4, true, 0},
		"superpackets":             {super, a, false, 900},
		"too large superpackets":   {super, a, false, 1400},
		"too large from a peer":    {ipv4Packet("10.1.2.7", "10.1.1.6", 1400), w.set.under4, true, 0},
		"in fragments":             {noDF, a, false, 0},
		"a forged source":          {ipv4Packet("10.1.1.6", "10.1.1.5", 200), a, false, 0},
		"a flow by the host":       {ipv4Packet("10.1.1.5", "10.1.1.6", 100), w.set.host, false, 0},
		"its answer":               {ipv4Packet("10.1.1.6", "10.1.1.5", 100), b, false, 0},
		"a flow by the host, away": {ipv4Packet("10.1.1.5", "10.1.2.7", 100), w.set.host, false, 0},
	} {
		got := testing.AllocsPerRun(20, func() {
			if w.from = tt.from; tt.mss > 0 {
				w.fillSuper(tt.packet, tt.mss)
			} else {
				w.fill(tt.packet, peer)
			}
			w.source, w.dest, w.route, w.lastDirect = source{}, dest{}, route{}, directFlow{}
			w.move(tt.ingress)
		})
		if got != 0 {
			t.Errorf("%s: %.1f allocations a batch, want none", name, got)
		}
	}
	if b.pod.rx.packets.Load() == 0 { // what is for the other goes by the host in some orders
		t.Error("the pod was handed nothing")
	}
}

// BenchmarkPods is what the data plane itself costs a pod's packet: an iteration is one packet, or one
// superpacket of 45. With flows, each pod has some by way of the host, so that packets are looked up among
// them.
func BenchmarkPods(b *testing.B) {
	for _, dst := range []string{"pod", "peer"} {
		for _, flows := range []bool{false, true} {
			for _, size := range []int{64, 1472, 45 * 1400} {
				w, _, _ := newPodPath(b, 0)
				at := map[string]string{"pod": "10.1.1.6", "peer": "10.1.2.7"}[dst]
				packet := ipv4Packet("10.1.1.5", at, min(size, 1472))
				super := tcpTo(at, 45*1400, true)
				if dst == "peer" {
					w.set.under4.super = supers(false)
				}
				if flows {
					for _, client := range []string{"10.1.1.5", "10.1.1.6", "10.1.2.7"} {
						w.engine.flows.Learn([]natflow.Translated{{Client: netip.MustParseAddrPort(client + ":7"),
							Backend: netip.MustParseAddrPort("10.1.1.6:53"), Proto: encap.ProtoUDP, Left: time.Hour}}, 0)
					}
				}
				b.Run(fmt.Sprintf("to=%s/flows=%v/size=%d", dst, flows, size), func(b *testing.B) {
					b.ReportAllocs()
					b.SetBytes(int64(size))
					for left := 0; b.Loop(); left-- {
						if left == 0 {
							w.source, w.dest, w.lastDirect = source{}, dest{}, directFlow{}
							if size > 1472 {
								left = w.fillSuper(super, 1400)
							} else {
								left = w.fill(packet, netip.AddrPort{})
							}
							w.move(false)
						}
					}
				})
			}
		}
	}
}

// TestDestinationsAreLookedUpOnceABurst: what the packet before had is used for the next one to the same
// address, and for no other.
func TestDestinationsAreLookedUpOnceABurst(t *testing.T) {
	w, a, b := newPodPath(t, 0)
	to, host := &keeper{}, &keeper{}
	b.port, w.set.host.port = to, host
	w.flow = &w.tally.egress
	w.ring.Reset(0)
	dsts := []string{"10.1.1.6", "10.1.1.6", "198.51.100.1", "10.1.1.6", "198.51.100.1", "198.51.100.1"}
	for _, d := range dsts {
		p := w.ring.Slot()
		w.ring.Commit(copy(p.Space(), ipv4Packet("10.1.1.5", d, 64)))
	}
	w.egress()
	if len(to.got) != 3 || len(host.got) != 3 || !slices.Equal(a.addrs, []netip.Addr{addr("10.1.1.5")}) {
		t.Errorf("%d packets for the pod and %d for the host, want 3 and 3", len(to.got), len(host.got))
	}
}
