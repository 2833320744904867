package tunnel

import (
	"bytes"
	"testing"

	"weft/encap"
	"weft/tunnel/port"
)

// capture is a port that keeps what a program would get, packet by packet. It cuts superpackets as a port
// does that sends runs.
type capture struct {
	port.Port
	tb  testing.TB
	got [][]byte
}

func (c *capture) WriteBatch(_ *port.Ring, ps []*port.Packet) {
	for _, p := range ps {
		p.Delivered()
		if p.SegSize == 0 {
			b := bytes.Clone(p.Bytes())
			if p.Partial {
				encap.FinishChecksum(b, p.CsumStart, p.CsumOffset)
			}
			c.got = append(c.got, b)
			continue
		}
		super, r, ok := p.ParseSuper()
		if !ok {
			c.tb.Fatal(r)
		}
		for k := range super.Segments {
			from, to := super.Payload(k)
			c.got = append(c.got, append(super.AppendHeader(nil, p.Bytes(), k, false), p.Bytes()[from:to]...))
		}
	}
}
