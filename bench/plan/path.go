package plan

import (
	"context"
	"fmt"
	"time"

	"weft/bench/histogram"
	"weft/bench/load"
	"weft/bench/perf"
)

// Path is what carries packets from one end to the other, with generators at both ends.
type Path struct {
	// Name and About are the rung's in a report.
	Name, About string
	// MTU is the largest IP packet that is carried whole, in bytes; IPv6 is its family.
	MTU  int
	IPv6 bool
	// Once leaves the path out of all rounds but the first: it stands beside the others and
	// is not compared with them.
	Once bool
	// CPUs is how many the nearer end can be pinned to, and so the farther one.
	CPUs int
	Ends Ends
	// Daemon is the program whose processor time TCP's result has, if there is one.
	Daemon string
	// Notes are for the report's reader; measuring may add to them.
	Notes []string
	// Check, if set, says what is wrong with the path itself when a measurement has failed.
	Check func() error
	// Memory, if set, is what its daemon holds resident now, and the most it has held; in bytes.
	Memory func() (now, peak uint64, err error)
}

// Ends make the traffic.
type Ends interface {
	// TCP sends as much as goes over so many streams.
	TCP(ctx context.Context, streams int, warmUp, last time.Duration) (load.TCPResult, error)
	// Open makes a flow, or many.
	Open(ctx context.Context, t load.Traffic, mode load.ReceiveMode) (Flow, error)
	// PingPong sends size bytes to and fro.
	PingPong(ctx context.Context, size int, last time.Duration, at Placement) (*histogram.Histogram, error)
}

// Placement is on which CPU each end of a ping-pong runs, or load.AnyCPU.
type Placement struct{ From, To int }

func (p Placement) String() string {
	if p == anywhere() {
		return "any"
	}
	return fmt.Sprintf("%d,%d", p.From, p.To)
}

func anywhere() Placement { return Placement{load.AnyCPU, load.AnyCPU} }

// Costing are ends that can say what bulk data costs their machine.
type Costing interface {
	Costs(ctx context.Context, streams int, warmUp, last time.Duration) (Costs, error)
}

// Costs are of bulk data, both ways to and fro, with acknowledgements.
type Costs struct {
	load.TCPResult
	// Copies is the share of the busy time; nil if that could not be found out.
	Copies *perf.Share
	// Sender and Receiver are the calls of the two nodes' daemons; nil if there are none, or if they could not be counted.
	Sender, Receiver *perf.Count
	// Missing says why something could not be found out.
	Missing []error
}

// Flow is a sender and a receiver of datagrams.
type Flow interface {
	// Trial sends at rate packets a second, or as fast as it can if rate is 0.
	Trial(ctx context.Context, rate float64, last time.Duration) (load.Trial, error)
	Close() error
}

// Bytes of headers: RFC 791, RFC 8200, RFC 768; a frame has its header and the check sequence.
const (
	ipv4Header  = 20
	ipv6Header  = 40
	udpHeader   = 8
	frameAround = 14 + 4
)

// headers are those between a UDP payload and the IP packet.
func headers(ipv6 bool) int {
	if ipv6 {
		return ipv6Header + udpHeader
	}
	return ipv4Header + udpHeader
}

// fit is the payload of a frame of so many bytes, as near as headers, tag and MTU let it be.
func fit(frame, mtu int, ipv6 bool) (payload int) {
	return min(max(frame-frameAround-headers(ipv6), load.MinPayload), mtu-headers(ipv6), load.MaxPayload)
}
