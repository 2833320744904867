package port

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
)

// Offload is an operation that a kernel can do for many packets at once. Each can be switched off, is probed
// when its port is opened, and can be lost later.
type Offload uint8

// The offloads of paths socket and raw, at their edges. Those that change what is on the
// wire are used towards peers only whose Recv names them.
const (
	OffloadTSO    Offload = iota // TUN to us: TCP superpackets
	OffloadUSO                   // TUN to us: UDP superpackets
	OffloadPCsum                 // us to the underlay: inner checksums left partial
	OffloadPack                  // us to the underlay: several packets in a datagram
	OffloadTunnel                // us to the underlay: whole superpackets (UDP tunnel GSO)
	OffloadGSO                   // us to the underlay: UDP_SEGMENT, or USO frames
	OffloadGRO                   // underlay to us: UDP_GRO, or USO frames
	OffloadTCP                   // us to the TUN: TCP superpackets
	OffloadUDP                   // us to the TUN: UDP superpackets
	NumOffloads                  // how many there are
)

var offloadNames = [NumOffloads]string{"tun-tso", "tun-uso", "pcsum", "pack", "tunnel-gso", "udp-gso",
	"udp-gro", "tun-tcp", "tun-udp"}

// String is the offload's name in the configuration, in status and in metrics.
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

// ParseOffloads reads names, as in the configuration.
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

// OffloadState is where an offload stands.
type OffloadState uint8

// The states.
const (
	_                  OffloadState = iota
	OffloadOn                       // in use
	OffloadSwitchedOff              // by the configuration
	OffloadUnsupported              // the kernel refused it when it was probed
	OffloadLost                     // the kernel refused it later
	OffloadBroken                   // what it sends does not arrive whole, as a peer says
)

// String is the state's name in status.
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

// OffloadStats is a snapshot of one offload. A system call that used it moved
// Segments/Calls packets.
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

// set notes the result of the probe; off is the configuration's word.
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

// TryAgain turns a broken offload on again. It reports whether it was broken.
func (o *OffloadSwitch) TryAgain() bool {
	return o.state.CompareAndSwap(uint32(OffloadBroken), uint32(OffloadOn))
}

// lose gives the offload up for good, and says so once.
func (o *OffloadSwitch) lose(log *slog.Logger, port string, cause error) {
	o.GiveUp(OffloadLost, log, port, cause)
}

// GiveUp puts the offload in a state in which it is not used, and says so once.
func (o *OffloadSwitch) GiveUp(to OffloadState, log *slog.Logger, port string, cause error) {
	if o.state.CompareAndSwap(uint32(OffloadOn), uint32(to)) {
		log.Warn("offload lost, going on without it", "event", EventOffloadLost, "offload", o.What.String(), "port",
			port, "cause", cause)
	}
}

// used counts one system call that moved segments packets.
func (o *OffloadSwitch) used(segments int) { o.add(use{1, uint64(segments)}) }

// use is what a batch has used an offload for.
type use struct{ calls, segments uint64 }

// count adds one system call, or one packet, that used it for so many segments.
func (u *use) count(segments int) {
	u.calls++
	u.segments += uint64(segments)
}

// add counts what a batch used. Workers share the counters, so it is called once a batch where every packet
// counts.
func (o *OffloadSwitch) add(u use) {
	if u.calls > 0 {
		o.calls.Add(u.calls)
		o.segments.Add(u.segments)
	}
}

func (o *OffloadSwitch) stats() OffloadStats {
	return OffloadStats{o.What, OffloadState(o.state.Load()), o.calls.Load(), o.segments.Load()}
}
