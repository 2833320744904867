package tunnel

import (
	"bytes"
	"testing"

	"weft/encap"
)

// capture is a port that keeps what a program would get, packet by packet. It cuts superpackets as a port does
// that sends runs.
type capture struct {
	Port
	tb  testing.TB
	got [][]byte
}

func (c *capture) WriteBatch(_ *Ring, ps []*Packet) {
	for _, p := range ps {
		p.Delivered()
		if p.segSize == 0 {
			b := bytes.Clone(p.Bytes())
			if p.partial {
				encap.FinishChecksum(b, p.csumStart, p.csumOffset)
			}
			c.got = append(c.got, b)
			continue
		}
		super, r, ok := p.parseSuper()
		if !ok {
			c.tb.Fatal(r)
		}
		for k := range super.Segments {
			from, to := super.Payload(k)
			c.got = append(c.got, append(super.AppendHeader(nil, p.Bytes(), k, false), p.Bytes()[from:to]...))
		}
	}
}
