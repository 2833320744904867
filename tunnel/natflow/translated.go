package natflow

import (
	"net/netip"
	"time"

	"weft/encap"
)

// Translated is a flow of the host's connection tracking whose destination the host's rules have translated.
type Translated struct {
	// Client opened the flow, and Backend is whom the host made of the address that it asked for: the answers go
	// from Backend to Client. Ports are 0 where Proto has none; of an echo both are its identifier.
	Client, Backend netip.AddrPort
	Proto           uint8 // IANA's number
	// Left is how long the host knows the flow if no more packet comes; Closing says of TCP that one side has
	// ended it.
	Left    time.Duration
	Closing bool
}

// Learn enters flows that the host knew before the table was made, so that they continue. Without them a
// backend's answers would go straight to a client that has asked another address. now is in Unix nanoseconds.
func (t *Table) Learn(flows []Translated, now int64) {
	for i := range flows {
		if f, ok := flows[i].answers(); ok {
			t.enter(f, seconds(now))
		}
	}
}

// answers is the flow of what the backend sends. ok is false if a packet could not be of it.
func (t *Translated) answers() (f flow, ok bool) {
	f = flow{src: t.Backend.Addr().Unmap(), dst: t.Client.Addr().Unmap(), proto: t.Proto, asks: true,
		fin: t.Closing, left: int64(t.Left / time.Second)}
	switch t.Proto {
	case encap.ProtoTCP, encap.ProtoUDP, protoSCTP, protoDCCP, protoUDPLite, encap.ProtoICMP, encap.ProtoICMPv6:
		f.sport, f.dport = t.Backend.Port(), t.Client.Port()
	}
	return f, f.src.IsValid() && f.dst.IsValid() && f.src != f.dst && f.left > 0
}
