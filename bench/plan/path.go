package plan

import (
	"context"
	"fmt"
	"time"

	"weft/bench/load"
)

// Path carries packets from one end to the other, with generators at both ends.
type Path struct {
	// Name and About are those of the rung in a report.
	Name, About string
	// MTU is the largest IP packet that is carried whole, in bytes; IPv6 is its family.
	MTU  int
	IPv6 bool
	// Once leaves the path out of all rounds but the first: it is shown beside the others and
	// is not compared with them.
	Once bool
	// CPUs is to how many CPUs each of the two ends can be pinned.
	CPUs int
	Ends Ends
	// Daemon is the name of the program whose processor time is in TCP's result, if that is not weftd.
	Daemon string
	// Check, if set, is called when a measurement has failed, and says what is wrong with the path itself. If
	// something is, the path is measured no more.
	Check func() error
	// Memory, if set, returns how many bytes its daemon holds resident now, and the most it has held.
	Memory func() (now, peak uint64, err error)
	// Close, if set, ends the path.
	Close func()
}

// Ends make the traffic.
type Ends interface {
	// TCP sends as much as the path takes over so many streams.
	TCP(ctx context.Context, streams int, warmUp, last time.Duration) (load.TCPResult, error)
	// Open opens the sockets for traffic of one or more flows.
	Open(ctx context.Context, t load.Traffic) (Flow, error)
	// PingPong sends size bytes to and fro, and returns how long round trips took.
	PingPong(ctx context.Context, size int, last time.Duration, at Placement) ([]time.Duration, error)
}

// Placement says on which CPU each end of a ping-pong runs, or load.AnyCPU.
type Placement struct{ From, To int }

func (p Placement) String() string {
	if p == anywhere() {
		return "any"
	}
	return fmt.Sprintf("%d,%d", p.From, p.To)
}

func anywhere() Placement { return Placement{load.AnyCPU, load.AnyCPU} }

// Flow is a sender and a receiver of datagrams.
type Flow interface {
	// Trial sends at rate packets a second, or as fast as it can if rate is 0.
	Trial(ctx context.Context, rate float64, last time.Duration) (load.Trial, error)
	Close() error
}

// Bytes of headers, by RFC 791, RFC 8200 and RFC 768. frameAround is Ethernet's header and check sequence.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	udpHeader   = 8
	frameAround = 14 + 4
)

// headers returns how many bytes of an IP packet stand before its UDP payload.
func headers(ipv6 bool) int {
	if ipv6 {
		return ipv6Header + udpHeader
	}
	return ipv4Header + udpHeader
}

// fit returns the UDP payload with which a frame is as near to so many bytes as headers, tag and MTU allow.
func fit(frame, mtu int, ipv6 bool) (payload int) {
	return min(max(frame-frameAround-headers(ipv6), load.MinPayload), mtu-headers(ipv6), load.MaxPayload)
}
