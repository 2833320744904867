package tunnel_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"weft/tunnel"
	"weft/tunnel/tunneltest"
)

// partial is udp4's or udp6's packet as a virtual wire hands it over: the
// checksum field holds the folded pseudo-header sum and nothing else.
func partial(t *testing.T, whole []byte) []byte {
	t.Helper()
	b := bytes.Clone(whole)
	addrs, l4 := b[12:20], 20
	if b[0]>>4 == 6 {
		addrs, l4 = b[8:40], 40
	}
	sum := uint32(17) + uint32(len(b)-l4)
	for i := 0; i < len(addrs); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(addrs[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[l4+6:], uint16(sum))
	return b
}

// TestPartialChecksumIsCompleted covers packets of every size up to 64 KB, of
// which none may be delivered with its checksum unfilled.
func TestPartialChecksumIsCompleted(t *testing.T) {
	n := start(t, spec(), tunnel.Config{})
	sizes := []int{0, 1, 2, 9, 64, 511, 1400, 1472, 9000, 40001, 65000}
	for _, size := range sizes {
		for _, whole := range [][]byte{
			udp4(t, "10.1.2.7", "10.1.1.5", size, nil),
			udp6(t, "fd00:1:2::7", "fd00:1:1::5", size),
		} {
			for name, b := range map[string][]byte{"partial": partial(t, whole), "complete": whole} {
				n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: b})
				d, ok := n.host.Next(within)
				if !ok || !bytes.Equal(d.Data, whole) {
					t.Errorf("%s, IPv%d, %d bytes: delivered checksum %x, want %x", name, whole[0]>>4, size, d.Data[20:28],
						whole[20:28])
				}
			}
		}
	}
	if got, want := settled(t, n, uint64(4*len(sizes))).Completed, uint64(2*len(sizes)); got != want {
		t.Errorf("%d checksums completed, want %d", got, want)
	}
}

// TestLoopDoesNotAllocate runs whole batches through the real loop, both ways.
func TestLoopDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Log("under the race detector allocations are not the program's own; the plain run counts them")
	}
	n := start(t, spec(), tunnel.Config{})
	out := [][]byte{
		udp4(t, "10.1.1.5", "10.1.2.7", 64, nil), udp4(t, "10.1.1.5", "10.1.3.7", 1400, nil),
		udp6(t, "fd00:1:1::5", "fd00:1:2::7", 200),
	}
	in := [][]byte{
		udp4(t, "10.1.2.7", "10.1.1.5", 64, nil), partial(t, udp4(t, "10.1.2.7", "10.1.1.5", 1400, nil)),
		udp6(t, "fd00:1:2::7", "fd00:1:1::5", 200),
		udp4(t, "10.1.9.7", "10.1.1.5", 64, nil), // a drop
	}
	want := n.Stats()
	run := func() {
		for range 8 {
			for _, b := range out {
				n.host.Inject(tunneltest.Datagram{Data: b})
			}
			for _, b := range in {
				n.wire.Inject(tunneltest.Datagram{Outer: outer("192.0.2.2"), Data: b})
			}
		}
		want.Egress.Received += uint64(8 * len(out))
		want.Ingress.Received += uint64(8 * len(in))
		for {
			if s := n.Stats(); s.Egress.Received == want.Egress.Received &&
				s.Ingress.Received == want.Ingress.Received {
				break
			}
		}
		n.wire.Discard()
		n.host.Discard()
	}
	run()
	if got := testing.AllocsPerRun(50, run); got > 0 && !raceEnabled {
		t.Errorf("%.1f allocations for %d packets, want none", got, 8*(len(out)+len(in)))
	}
}
