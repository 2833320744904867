package load

import (
	"fmt"
	"math/rand/v2"
)

// SendMode is how a sender of datagrams hands them to its kernel.
type SendMode uint8

// The modes of sending.
const (
	_       SendMode = iota
	SendTo           // one system call for each datagram, as most programs do
	Segment          // UDP_SEGMENT: burst datagrams are one packet in the kernel until something cuts it
)

func (m SendMode) String() string {
	switch m {
	case SendTo:
		return "sendto"
	case Segment:
		return "segment"
	}
	return fmt.Sprintf("sendmode(%d)", uint8(m))
}

// Limits of Traffic.
const (
	// MinPayload is the length of the tag that tells a trial's datagrams from all others.
	MinPayload = 8
	// MaxPayload is the largest UDP payload of an IPv4 packet; that of an IPv6 packet is 20 bytes larger.
	MaxPayload = 65507
)

// Traffic says which datagrams to send: of which sizes, and over how many flows. Two flows
// differ in the sender's port.
type Traffic struct {
	Mode SendMode
	// Payloads are the sizes that occur, in bytes of UDP payload, and Weights say how often
	// each does; a missing weight is 1. Mode Segment has one size.
	Payloads []int
	Weights  []int
	// Flows is how many there are; 1 by default. Mode Segment has one flow.
	Flows int
}

// Single is one flow of one size.
func Single(mode SendMode, payload int) Traffic {
	return Traffic{Mode: mode, Payloads: []int{payload}, Flows: 1}
}

// Largest is the largest payload.
func (t Traffic) Largest() (n int) {
	for _, p := range t.Payloads {
		n = max(n, p)
	}
	return n
}

// shot is one datagram of the sequence that a sender repeats.
type shot struct{ flow, payload uint16 }

// minShots is the least length of a sequence. The order of flows and sizes repeats only after so many
// datagrams, so that no queue sees a pattern in it.
const minShots = 12 << 10

// sequence draws a flow and a size for each datagram, independently, from a fixed seed, so that the
// same traffic always comes in the same order. Every flow and every size occurs exactly as
// often as it should.
func (t Traffic) sequence() []shot {
	if t.Flows == 1 && len(t.Payloads) == 1 {
		return []shot{{0, uint16(t.Payloads[0])}}
	}
	var sizes []int
	for i, p := range t.Payloads {
		weight := 1
		if i < len(t.Weights) {
			weight = t.Weights[i]
		}
		for range weight {
			sizes = append(sizes, p)
		}
	}
	round := t.Flows * len(sizes)
	n := (minShots + round - 1) / round * round
	l := make([]shot, n)
	for i := range l {
		l[i] = shot{uint16(i % t.Flows), uint16(sizes[i/t.Flows%len(sizes)])}
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(n, func(i, j int) { l[i].flow, l[j].flow = l[j].flow, l[i].flow })
	r.Shuffle(n, func(i, j int) { l[i].payload, l[j].payload = l[j].payload, l[i].payload })
	return l
}
