package port

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Offload is an operation that a kernel does for many packets at once. Each offload can be switched off, is
// probed when its port is opened, and can be lost later.
type Offload uint8

// The offloads of paths socket and raw. Offloads that change the packets on the wire are used only towards
// peers whose Recv has them.
const (
	OffloadTSO    Offload = iota // from the TUN: TCP superpackets
	OffloadUSO                   // from the TUN: UDP superpackets
	OffloadPCsum                 // to the underlay: partial inner checksums
	OffloadPack                  // to the underlay: several packets in a datagram
	OffloadTunnel                // to the underlay: whole superpackets (UDP tunnel GSO)
	OffloadGSO                   // to the underlay: UDP_SEGMENT, or USO frames
	OffloadGRO                   // from the underlay: UDP_GRO, or USO frames
	OffloadTCP                   // to the TUN: TCP superpackets
	OffloadUDP                   // to the TUN: UDP superpackets
	NumOffloads                  // number of offloads
)

var offloadNames = [NumOffloads]string{"tun-tso", "tun-uso", "pcsum", "pack", "tunnel-gso", "udp-gso",
	"udp-gro", "tun-tcp", "tun-udp"}

// String returns the offload's name, as in the configuration, in status and in metrics.
func (o Offload) String() string {
	if o < NumOffloads {
		return offloadNames[o]
	}
	return fmt.Sprintf("offload(%d)", uint8(o))
}

// OffloadSet is a set of offloads.
type OffloadSet uint16

// With returns the set with o added.
func (s OffloadSet) With(o Offload) OffloadSet { return s | 1<<o }

// Has reports whether o is in the set.
func (s OffloadSet) Has(o Offload) bool { return s&(1<<o) != 0 }

// ParseOffloads parses the names that the configuration uses.
func ParseOffloads(names []string) (OffloadSet, error) {
	var s OffloadSet
	for _, n := range names {
		found := false
		for o := range NumOffloads {
			if strings.EqualFold(n, o.String()) {
				s, found = s.With(o), true
			}
		}
		if !found {
			return 0, fmt.Errorf("%q is not one of %s", n, strings.Join(offloadNames[:], ", "))
		}
	}
	return s, nil
}

// OffloadState is the state of an offload.
type OffloadState uint8

// The states.
const (
	_                  OffloadState = iota
	OffloadOn                       // in use
	OffloadSwitchedOff              // by the configuration
	OffloadUnsupported              // rejected by the kernel when the port was opened
	OffloadLost                     // rejected by the kernel later
	OffloadBroken                   // a peer reports that runs do not arrive intact
)

// String returns the state's name in status.
func (s OffloadState) String() string {
	switch s {
	case OffloadOn:
		return "on"
	case OffloadSwitchedOff:
		return "switched off"
	case OffloadUnsupported:
		return "not supported by this kernel"
	case OffloadLost:
		return "lost"
	case OffloadBroken:
		return "broken"
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// OffloadStats is a snapshot of one offload. Calls system calls used it to move Segments packets.
type OffloadStats struct {
	Offload         Offload
	State           OffloadState
	Calls, Segments uint64
}

// OffloadSwitch is one offload of one port. It is safe for concurrent use.
type OffloadSwitch struct {
	What            Offload
	state           atomic.Uint32
	calls, segments atomic.Uint64
}

// set sets the state. off has the offloads that the configuration switches off, and supported is the result
// of the probe.
func (o *OffloadSwitch) set(what Offload, off OffloadSet, supported bool) {
	o.What = what
	switch {
	case off.Has(what):
		o.state.Store(uint32(OffloadSwitchedOff))
	case !supported:
		o.state.Store(uint32(OffloadUnsupported))
	default:
		o.state.Store(uint32(OffloadOn))
	}
}

// On reports whether the offload is in use.
func (o *OffloadSwitch) On() bool { return OffloadState(o.state.Load()) == OffloadOn }

// Retry turns a broken offload on again, and reports whether it was broken.
func (o *OffloadSwitch) Retry() bool {
	return o.state.CompareAndSwap(uint32(OffloadBroken), uint32(OffloadOn))
}

// lose turns the offload off for good, and logs it once.
func (o *OffloadSwitch) lose(log *slog.Logger, port string, cause error) {
	o.TurnOff(OffloadLost, log, port, cause)
}

// TurnOff puts the offload into a state in which it is not used, and logs it once.
func (o *OffloadSwitch) TurnOff(to OffloadState, log *slog.Logger, port string, cause error) {
	if o.state.CompareAndSwap(uint32(OffloadOn), uint32(to)) {
		log.Warn("offload lost; continuing without it", "event", EventOffloadLost, "offload", o.What.String(),
			"port", port, "cause", cause)
	}
}

// used counts one system call that moved segments packets.
func (o *OffloadSwitch) used(segments int) { o.add(use{1, uint64(segments)}) }

// use is how much a batch used an offload.
type use struct{ calls, segments uint64 }

// count adds one system call, or one packet, with that many segments.
func (u *use) count(segments int) {
	u.calls++
	u.segments += uint64(segments)
}

// add adds what a batch used. Workers share the counters, so offloads that are used per packet are added once
// per batch.
func (o *OffloadSwitch) add(u use) {
	if u.calls > 0 {
		o.calls.Add(u.calls)
		o.segments.Add(u.segments)
	}
}

func (o *OffloadSwitch) stats() OffloadStats {
	return OffloadStats{o.What, OffloadState(o.state.Load()), o.calls.Load(), o.segments.Load()}
}
