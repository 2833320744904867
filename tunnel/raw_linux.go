package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"weft/encap"
)

// RawOptions says which link a raw underlay port sends and receives on.
type RawOptions struct {
	// UDPOptions are those of the bound UDP socket; Device is not used.
	UDPOptions
	// Link is the index of the underlay's link, an Ethernet device.
	Link int
	// TAP names the device through which tunnel GSO leaves, or is a template such as
	// "weft-tx%d"; "" does without. It is persistent, and a device that exists is attached to.
	TAP string
}

// NextHop is how frames get to another node's outer address: the link addresses of our
// end and of the node itself or the gateway to it.
type NextHop struct {
	Local, Remote encap.MAC
}

// Raw is the underlay as whole Ethernet frames, each with a virtio-net header (path raw): packet sockets,
// and a TAP for superpackets that leave whole. Beside them a UDP socket stays bound: the port is ours, the
// kernel's GRO stays on, fragments and ICMP errors arrive there, and what has no known
// next hop leaves there. It is safe for concurrent use.
type Raw struct {
	frames  *frames
	tap     *tap
	sockets *sockets
	runs    *runWriter // which writes to the three
}

// OpenRaw opens the sockets in the current network namespace. The frames do not arrive
// before Listen. The error wraps unix.EPERM without CAP_NET_RAW, and those of ListenUDP.
func OpenRaw(o RawOptions) (*Raw, error) {
	if o.From != nil {
		return keptRaw(o)
	}
	queues := max(1, o.Queues)
	o.Queues = 1 // the UDP socket receives little
	s, err := listenSockets(o.UDPOptions)
	if err != nil {
		return nil, err
	}
	f, err := openFrames(o, s.local, queues, &s.gro)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket for %v: %w", s.local, err), s.close())
	}
	return composeRaw(o, f, openTAP(o), s), nil
}

func composeRaw(o RawOptions, f *frames, t *tap, s *sockets) *Raw {
	runs := newRunWriter(&frameWire{f, t, s}, o.UDPOptions, s.local.String(), s.takesRuns())
	runs.choice.Store(newChoice(Outlets{First: OutletWhole}))
	return &Raw{frames: f, tap: t, sockets: s, runs: runs}
}

// Listen has the tunnel's unfragmented datagrams that reach the link arrive as frames from now
// on. The caller sees to it that they no longer reach the UDP socket as well, and attaches the port
// afterwards. A port that was kept listens already.
func (r *Raw) Listen() error { return r.frames.listen() }

// SetNextHops replaces the next hops, by outer address. To an address that is not among
// them the UDP socket sends.
func (r *Raw) SetNextHops(next map[netip.Addr]NextHop) { r.frames.setNextHops(next) }

// TAP is the name of the device for tunnel GSO, "" if there is none: none was asked for,
// or the kernel has no tunnel GSO for TAPs (before Linux 6.17).
func (r *Raw) TAP() string { return r.tap.name }

// UseTAP has superpackets leave by the TAP from now on, or no longer. The caller has made its
// ingress lead to the underlay's egress.
func (r *Raw) UseTAP(use bool) { r.tap.use.Store(use && r.tap.fd >= 0) }

// SetOutlets says how superpackets leave from now on; until the first call it is whole. What trials found under other Outlets is
// forgotten. Where the TAP is not in use, all leave in runs.
func (r *Raw) SetOutlets(o Outlets) {
	if r.runs.choice.Load().outlets != o {
		r.runs.choice.Store(newChoice(o))
	}
}

// Outlets says how superpackets leave, and what trials found.
func (r *Raw) Outlets() OutletStats {
	s := r.runs.choice.Load().stats()
	s.Local = r.sockets.local
	if s.Now == OutletRuns && !r.runs.gso.on() { // it may have been lost since the outlets were set
		s.Now = OutletCut
	}
	return s
}

// LocalAddr implements Underlay.
func (r *Raw) LocalAddr() netip.AddrPort { return r.sockets.local }

// Queues implements queuedPort: the first packet socket, the UDP socket for what is no frame of ours, the
// other packet sockets, and the sockets of the lanes, which have errors.
func (r *Raw) Queues() []Queue {
	frames, sockets := r.frames.queues(), r.sockets.queues()
	l := append([]Queue{frames[0], sockets[0]}, frames[1:]...)
	return append(l, sockets[1:]...)
}

// PollFD implements Port: it is the UDP socket's.
func (r *Raw) PollFD() int { return r.sockets.group[0].fd }

// ReadBatch implements Port: it reads the UDP socket.
func (r *Raw) ReadBatch(ring *Ring) error { return r.sockets.readRuns(r.sockets.group[0], ring) }

// WriteBatch implements Port, in runs.
func (r *Raw) WriteBatch(ring *Ring, ps []*Packet) { r.runs.writeRuns(ring, ps) }

// Offloads reports the port's.
func (r *Raw) Offloads() []OffloadStats {
	return append(r.runs.stats(), r.sockets.gro.stats(), r.tap.offload.stats())
}

// Overflow is how many frames and datagrams the kernel dropped because a receive buffer was full.
func (r *Raw) Overflow() uint64 { return r.frames.overflow() + r.sockets.overflow() }

// Close implements Port.
func (r *Raw) Close() error {
	var errs [3]error
	var wg sync.WaitGroup // each waits for RCU: they wait together
	for i, f := range []func() error{r.tap.close, r.frames.close, r.sockets.close} {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

func (r *Raw) leavesPartial(recv Recv) bool { return r.runs.leavesPartial(recv) }
func (r *Raw) runOffload() *offload         { return &r.runs.gso }
func (r *Raw) lanes() int                   { return max(1, len(r.sockets.lanes)) }
func (r *Raw) lanePort(lane uint8) uint16   { return r.sockets.lanePort(lane) }
func (r *Raw) readers() int                 { return r.frames.listening }
func (r *Raw) fill() float64                { return r.frames.fill() }

// hold leaves the UDP socket alone, where only fragments arrive.
func (r *Raw) hold(held []heldSource) error { return r.frames.hold(held) }
