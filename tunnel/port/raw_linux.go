package port

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"weft/encap"
)

// RawOptions describes the underlay port of path raw.
type RawOptions struct {
	// UDPOptions are those of the UDP socket. Device is not used.
	UDPOptions
	// Link is the interface index of the underlay's link, an Ethernet device.
	Link int
	// TAP is the name of the device that sends superpackets by tunnel GSO, or a template such as "weft-tx%d". ""
	// means none. The device is persistent. The port attaches to an existing one.
	TAP string
}

// NextHop has the link addresses of frames to another node: the local one, and that of the node or its
// gateway.
type NextHop struct {
	Local, Remote encap.MAC
}

// Raw is the underlay port of path raw. Packet sockets move whole Ethernet frames, each with a virtio-net
// header, and a TAP sends superpackets whole. A bound UDP socket reserves the port and keeps the kernel's GRO
// on. It also receives fragments and ICMP errors, and sends packets without a known next hop. Raw is safe for
// concurrent use.
type Raw struct {
	frames  *frames
	tap     *tap
	sockets *sockets
	runs    *runWriter // writes to the three above
}

// OpenRaw opens the sockets in the current network namespace. No frames arrive before Listen. The error wraps
// unix.EPERM without CAP_NET_RAW, and the errors of ListenUDP.
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
	runs := newRunWriter(&frameWire{f, t, s}, o.UDPOptions, s.local.String(), s.supportsRuns())
	runs.outlet.Store(&OutletChoice{Outlet: OutletWhole})
	return &Raw{frames: f, tap: t, sockets: s, runs: runs}
}

// Listen starts receiving the tunnel's unfragmented datagrams as frames. The caller drops them before the UDP
// socket, and attaches the port afterwards. A kept port already listens.
func (r *Raw) Listen() error { return r.frames.listen() }

// SetNextHops replaces the next hops, by outer address. The UDP socket sends to all other addresses.
func (r *Raw) SetNextHops(next map[netip.Addr]NextHop) { r.frames.setNextHops(next) }

// TAP returns the name of the device for tunnel GSO. It is "" if none was requested, or if the kernel has no
// tunnel GSO for TAPs (before Linux 6.17).
func (r *Raw) TAP() string { return r.tap.name }

// UseTAP starts or stops sending superpackets by the TAP. The caller must have redirected the TAP's ingress
// to the egress of the underlay's link.
func (r *Raw) UseTAP(use bool) { r.tap.use.Store(use && r.tap.fd >= 0) }

// SetOutlet chooses how superpackets leave from now on. Until the first call they leave whole. While the TAP
// is not in use, all leave in runs.
func (r *Raw) SetOutlet(c OutletChoice) { r.runs.outlet.Store(&c) }

// Outlet returns the outlet in use.
func (r *Raw) Outlet() OutletStats {
	c := *r.runs.outlet.Load()
	s := OutletStats{Chosen: c, Local: r.sockets.local, Now: c.Outlet}
	if s.Now == OutletRuns && !r.runs.gso.On() { // the offload may have been lost since
		s.Now = OutletCut
	}
	return s
}

// LocalAddr implements Underlay.
func (r *Raw) LocalAddr() netip.AddrPort { return r.sockets.local }

// Queues implements Port: the first packet socket, the UDP socket, the other packet sockets, and the sockets
// of the lanes, which only have errors.
func (r *Raw) Queues() []Queue {
	frames, sockets := r.frames.queues(), r.sockets.queues()
	l := append([]Queue{frames[0], sockets[0]}, frames[1:]...)
	return append(l, sockets[1:]...)
}

// WriteBatch implements Port.
func (r *Raw) WriteBatch(ring *Ring, ps []*Packet) { r.runs.writeRuns(ring, ps) }

// Offloads implements Super.
func (r *Raw) Offloads() []OffloadStats {
	return append(r.runs.stats(), r.sockets.gro.stats(), r.tap.offload.stats())
}

// Overflow returns the number of frames and datagrams that the kernel dropped because a receive buffer was
// full.
func (r *Raw) Overflow() uint64 { return r.frames.overflow() + r.sockets.overflow() }

// Close implements Port.
func (r *Raw) Close() error {
	var errs [3]error
	var wg sync.WaitGroup // each close waits for RCU: run them concurrently
	for i, f := range []func() error{r.tap.close, r.frames.close, r.sockets.close} {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// LeavesPartial implements Super.
func (r *Raw) LeavesPartial(recv Recv) bool { return r.runs.LeavesPartial(recv) }

// RunOffload implements Spread.
func (r *Raw) RunOffload() *OffloadSwitch { return &r.runs.gso }

// Lanes implements Spread.
func (r *Raw) Lanes() int { return max(1, len(r.sockets.lanes)) }

// LanePort implements Spread.
func (r *Raw) LanePort(lane uint8) uint16 { return r.sockets.LanePort(lane) }

// Readers implements Spread.
func (r *Raw) Readers() int { return r.frames.listening }

// Fill implements Throttler.
func (r *Raw) Fill() float64 { return r.frames.Fill() }

// Throttle implements Throttler. It leaves the UDP socket alone, which receives only fragments.
func (r *Raw) Throttle(held []ThrottledSource) error { return r.frames.Throttle(held) }
