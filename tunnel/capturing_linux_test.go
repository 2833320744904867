package tunnel

import (
	"bytes"
	"testing"

	"weft/encap"
)

// capture is an inner port that keeps what a program would get, packet by packet.
type capture struct {
	Port
	tb  testing.TB
	got [][]byte
}

func (c *capture) WriteBatch(_ *Ring, ps []*Packet) {
	for _, p := range ps {
		c.got = append(c.got, wholePackets(c.tb, p)...)
		p.Delivered()
	}
}

// wholePackets is what p is or stands for, with complete checksums.
func wholePackets(tb testing.TB, p *Packet) (l [][]byte) {
	tb.Helper()
	b := bytes.Clone(p.Bytes())
	if p.segSize == 0 {
		if p.partial {
			encap.FinishChecksum(b, p.csumStart, p.csumOffset)
		}
		return [][]byte{b}
	}
	in, err := encap.ParseInner(b)
	if err != nil {
		tb.Fatal(err)
	}
	super, err := encap.ParseSuper(b, in, p.segSize)
	if err != nil {
		tb.Fatal(err)
	}
	for k := range super.Segments {
		from, to := super.Payload(k)
		l = append(l, append(super.AppendHeader(nil, b, k, false), b[from:to]...))
	}
	return l
}
