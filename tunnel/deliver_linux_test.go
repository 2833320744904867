package tunnel

import (
	"slices"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// orderPort notes the identification of each IPv4 packet that is written to it.
type orderPort struct {
	port.Port
	got []byte
}

func (o *orderPort) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, p := range ps {
		o.got = append(o.got, p.Bytes()[5])
		p.Delivered()
	}
}

// TestPiecesKeepTheirPlace has a packet that leaves in pieces between two that leave whole. The pieces are
// written at once, so what was queued before them must be written first.
func TestPiecesKeepTheirPlace(t *testing.T) {
	udp := func(id byte, size int) []byte { return with(ipv4Packet("10.1.1.5", "10.1.4.7", size), 4, 0, id, 0) }
	for name, tt := range map[string]struct {
		second []byte
		mss    int
		want   []byte
	}{
		"fragments":                    {second: udp(2, 2000), want: []byte{1, 2, 2, 3}},
		"fragments of a superpacket":   {second: udp(2, 28+2*1400), mss: 1400, want: []byte{1, 2, 2, 3, 3, 3}},
		"segments, for a port of none": {second: tcpTo("10.1.4.7", 1000, true), mss: 500, want: []byte{1, 0, 1, 3}},
		"smaller segments, for the same": {second: tcpTo("10.1.4.7", 2*1400, false), mss: 1400,
			want: []byte{1, 0, 1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHotPath(t, 3)
			out := &orderPort{}
			w.set.under4.port = out
			w.ring.Reset(0)
			for i, b := range [][]byte{udp(1, 100), tt.second, udp(3, 100)} {
				p := w.ring.Slot()
				w.ring.Commit(copy(p.Space(), b))
				if i == 1 && tt.mss > 0 {
					p.SegSize, p.Partial, p.CsumStart, p.CsumOffset = tt.mss, true, 20, encap.ChecksumOffsetTCP
					if b[9] == encap.ProtoUDP {
						p.CsumOffset = encap.ChecksumOffsetUDP
					}
				}
			}
			w.move(false)
			if !slices.Equal(out.got, tt.want) {
				t.Errorf("identifications in the order of writing: %v, want %v", out.got, tt.want)
			}
		})
	}
}
