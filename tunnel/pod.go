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
	// least one is needed. No other pod may have it.
	Addrs []netip.Addr
	// MTU is the MTU of the pod's interface, in bytes, which ICMP errors report for a packet that does not fit.
	// 0 means unknown: then every packet fits. Engine.SetMTU changes it.
	MTU int
}

// PodStats is a snapshot of the traffic of a pod's port, in inner packets.
type PodStats struct {
	Port  PortID
	Addrs []netip.Addr // a copy that the caller owns
	// MTU is the MTU given to AttachPod, or to SetMTU since.
	MTU int
	// Lost means that the pod's interface is gone. The port stays attached until Detach.
	Lost bool
	// TxPackets and TxBytes count what the pod sent. Drops counts the part that was dropped, by reason.
	TxPackets, TxBytes uint64
	Drops              [port.NumDropReasons]uint64
	// RxPackets and RxBytes count what was delivered to the pod's interface, and RxDrops what was for the pod
	// and dropped. Neither includes ICMP errors of the data plane.
	RxPackets, RxBytes uint64
	RxDrops            [port.NumDropReasons]uint64
	// LastTx and LastRx are when the pod last sent and received packets, with a resolution of one second. They
	// are zero if it never did.
	LastTx, LastRx time.Time
}

// pod is the state of a pod's port.
type pod struct {
	mtu atomic.Int64 // bytes; 0 if unknown

	// The worker that reads the port writes tx, once a batch. Any worker writes rx, once a run of packets.
	tx        podCounters
	_         [64]byte
	rx        podCounters
	icmpLimit rateLimit // of ICMP errors to the pod; used by the worker that reads the port
}

// podCounters are of one direction. The rarely written drops come last, away from what every batch writes.
type podCounters struct {
	packets, bytes atomic.Uint64
	last           atomic.Int64 // Unix seconds
	drops          [port.NumDropReasons]atomic.Uint64
}

func (c *podCounters) add(packets, bytes uint64, now int64) {
	if packets == 0 {
		return
	}
	c.packets.Add(packets)
	c.bytes.Add(bytes)
	if sec := now / int64(time.Second); c.last.Load() != sec {
		c.last.Store(sec)
	}
}

// countSent counts a batch that was read from the pod.
func (p *pod) countSent(f *Flow, now int64) {
	p.tx.add(f.Received, f.ReceivedBytes, now)
	if f.Delivered != f.Received {
		for r, n := range f.Drops {
			addTo(&p.tx.drops[r], n)
		}
	}
}

// AttachPod attaches the port of a pod; see Attach.
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
			return 0, fmt.Errorf("attach pod port: a pod cannot have address %v", a)
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
		return fmt.Errorf("MTU of port %d: no pod has this port", id)
	}
	a.pod.mtu.Store(int64(mtu))
	return nil
}

// Pods returns the counters of every pod's port, in the order of attachment. Workers keep counting meanwhile,
// so the counters are not of one instant.
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

func (a *attachedPort) podStats() PodStats {
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
