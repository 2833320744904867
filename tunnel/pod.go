package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"weft/encap"
	"weft/tunnel/port"
)

// PodOptions describes the port of a pod.
type PodOptions struct {
	// Addrs are the pod's addresses: the sources that it may use, and the destinations that it receives. At
	// least one is needed, and no other pod may have it.
	Addrs []netip.Addr
	// MTU is the MTU of the pod's interface, in bytes. ICMP errors report it for a packet that does not fit.
	// With 0, which means unknown, every packet fits. Engine.SetMTU changes it.
	MTU int
}

// PodStats is a snapshot of the traffic between a pod's port and the data plane, in inner packets.
type PodStats struct {
	Port  PortID
	Addrs []netip.Addr // the caller's
	// MTU is what the port was attached with, or SetMTU has set since.
	MTU int
	// Lost means that the pod's interface is gone, and that the port waits for Detach.
	Lost bool
	// TxPackets and TxBytes count what the pod has sent, and Drops the part that was dropped, by reason.
	TxPackets, TxBytes uint64
	Drops              [port.NumDropReasons]uint64
	// RxPackets and RxBytes are what the pod's interface took, and RxDrops what was for the pod and was not
	// handed to it. ICMP errors of the data plane are in neither.
	RxPackets, RxBytes uint64
	RxDrops            [port.NumDropReasons]uint64
	// LastTx and LastRx are when packets last came from the pod and went to it; zero if none did. One-second
	// resolution.
	LastTx, LastRx time.Time
}

// pod is what the data plane keeps for a pod's port.
type pod struct {
	mtu atomic.Int64 // bytes; 0 if it is not known

	// What the pod sent is written by the worker that reads its port, once a batch; what it is handed by any
	// worker, once a run.
	tx     podCounters
	_      [64]byte
	rx     podCounters
	bucket bucket // of ICMP errors to the pod; the worker's that reads its port

}

// podCounters are of one direction. Drops are few: they come last, away from what every batch writes.
type podCounters struct {
	packets, bytes atomic.Uint64
	last           atomic.Int64 // Unix seconds
	drops          [port.NumDropReasons]atomic.Uint64
}

func (c *podCounters) passed(packets, bytes uint64, now int64) {
	if packets == 0 {
		return
	}
	c.packets.Add(packets)
	c.bytes.Add(bytes)
	if sec := now / int64(time.Second); c.last.Load() != sec {
		c.last.Store(sec)
	}
}

// sent counts a batch that was read from the pod.
func (p *pod) sent(f *Flow, now int64) {
	p.tx.passed(f.Received, f.ReceivedBytes, now)
	if f.Delivered != f.Received {
		for r, n := range f.Drops {
			addTo(&p.tx.drops[r], n)
		}
	}
}

// AttachPod attaches the port of a pod, as Attach does, with its options.
func (e *Engine) AttachPod(p port.Port, o PodOptions) (PortID, error) {
	switch {
	case len(o.Addrs) == 0:
		return 0, errors.New("attach pod port: a pod without an address can neither send nor receive")
	case o.MTU != 0 && (o.MTU < encap.MinMTU4 || o.MTU > port.MaxPacket):
		return 0, fmt.Errorf("attach pod port: an MTU of %d is outside of %d to %d", o.MTU,
			encap.MinMTU4, port.MaxPacket)
	}
	for _, a := range o.Addrs {
		if encap.MartianSource(a) {
			return 0, fmt.Errorf("attach pod port: %v is no address that a pod can have", a)
		}
	}
	return e.attach(p, RolePod, o.Addrs, o.MTU)
}

// SetMTU sets the MTU of a pod's interface, in bytes.
func (e *Engine) SetMTU(id PortID, mtu int) error {
	if mtu < encap.MinMTU4 || mtu > port.MaxPacket {
		return fmt.Errorf("MTU of port %d: %d is outside of %d to %d", id, mtu, encap.MinMTU4, port.MaxPacket)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.attached[id]
	if a == nil || a.pod == nil {
		return fmt.Errorf("MTU of port %d: there is no pod's port of that number", id)
	}
	a.pod.mtu.Store(int64(mtu))
	return nil
}

// Pods reads the counters of every pod's port, in the order in which they were attached. They are of one
// moment only roughly.
func (e *Engine) Pods() []PodStats {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := make([]PodStats, 0, len(e.attached))
	for _, a := range e.attached {
		if a.pod != nil {
			l = append(l, a.podStats())
		}
	}
	slices.SortFunc(l, func(a, b PodStats) int { return cmp.Compare(a.Port, b.Port) })
	return l
}

func (a *attached) podStats() PodStats {
	p := a.pod
	s := PodStats{
		Port: a.id, Addrs: slices.Clone(a.addrs), MTU: int(p.mtu.Load()), Lost: a.lost.Load(),
		LastTx: unixTime(p.tx.last.Load()), LastRx: unixTime(p.rx.last.Load()),
		RxPackets: p.rx.packets.Load(), RxBytes: p.rx.bytes.Load(),
		TxPackets: p.tx.packets.Load(), TxBytes: p.tx.bytes.Load(),
	}
	for r := range s.Drops {
		s.Drops[r], s.RxDrops[r] = p.tx.drops[r].Load(), p.rx.drops[r].Load()
	}
	return s
}
