package natflow

import (
	"net/netip"
	"time"

	"weft/encap"
)

// Translated is a flow of the host's connection tracking with a translated destination.
type Translated struct {
	// Client opened the flow, and Backend is the translated destination: replies go from Backend to Client.
	// Ports are 0 if Proto has none. An echo has its identifier in both ports.
	Client, Backend netip.AddrPort
	Proto           uint8 // IANA protocol number
	// Left is how long the host keeps the flow without further packets. Closing means that one side has closed
	// the TCP connection.
	Left    time.Duration
	Closing bool
}

// Learn enters flows that the host translated before the table was made, so that they continue. Otherwise a
// backend's replies would go directly to the client, which expects another source. now is in Unix
// nanoseconds.
func (t *Table) Learn(flows []Translated, now int64) {
	for i := range flows {
		if f, ok := flows[i].answers(); ok {
			t.enter(f, seconds(now))
		}
	}
}

// answers returns the flow of the replies. ok is false if the flow is invalid or over.
func (t *Translated) answers() (f flow, ok bool) {
	f = flow{src: t.Backend.Addr().Unmap(), dst: t.Client.Addr().Unmap(), proto: t.Proto, asks: true,
		fin: t.Closing, left: int64(t.Left / time.Second)}
	switch t.Proto {
	case encap.ProtoTCP, encap.ProtoUDP, protoSCTP, protoDCCP, protoUDPLite, encap.ProtoICMP, encap.ProtoICMPv6:
		f.sport, f.dport = t.Backend.Port(), t.Client.Port()
	}
	return f, f.src.IsValid() && f.dst.IsValid() && f.src != f.dst && f.left > 0
}
