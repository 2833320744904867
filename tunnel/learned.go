package tunnel

import (
	"net/netip"
	"slices"
	"time"

	"weft/encap"
)

// Translated is a flow of the host's connection tracking whose destination the host's rules have translated.
type Translated struct {
	// Client opened the flow, and Backend is whom the host made of the address that it asked for: the answers go from Backend to
	// Client. Ports are 0 where Proto has none; of an echo both are its identifier.
	Client, Backend netip.AddrPort
	Proto           uint8 // IANA's number
	// Left is how long the host knows the flow if no more packet comes; Closing says of TCP that one side has ended it.
	Left    time.Duration
	Closing bool
}

// These bound what is remembered of flows whose clients are not there yet, when an engine begins: how many, and for how many seconds.
const (
	mostLearned = 1 << 16
	learnedFor  = 600
)

// learned are flows that an earlier engine had return entries for, and whose client is neither a pod nor a peer so far. Engine.mu guards it.
type learned struct {
	flows []learnedFlow
	until int64 // seconds
}

// learnedFlow is the flow of the answers, and until when it is good, in seconds.
type learnedFlow struct {
	flow
	until int64
}

// Learn opens the return entries that an earlier engine of this node had, so that their flows continue.
// Without them a backend's answers would go straight to a client that has asked another address. The engine
// opens an entry before it sends anything to its pod or peer, if that appears within ten minutes. Learn
// replaces what was learned before. Call it before pods are attached, or while the engine is paused.
func (e *Engine) Learn(flows []Translated) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sec := seconds(e.now())
	e.learned = learned{until: sec + learnedFor}
	ports, table := e.ports.Load(), e.table.Load()
	for i := range flows {
		f, ok := flows[i].answers(sec)
		if !ok {
			continue
		}
		d := dest{pod: ports.pod(f.dst)}
		if d.pod == nil {
			d.peer, _ = table.routes.Lookup(f.dst)
		}
		if r := d.returns(); r != nil {
			e.enter(r, &f, sec)
		} else if len(e.learned.flows) < mostLearned {
			e.learned.flows = append(e.learned.flows, f)
		}
	}
}

// answers is the flow of what the backend sends. ok is false if a packet could not be of it.
func (t *Translated) answers(sec int64) (f learnedFlow, ok bool) {
	f = learnedFlow{flow{
		src: t.Backend.Addr().Unmap(), dst: t.Client.Addr().Unmap(), proto: t.Proto, asks: true, fin: t.Closing,
	}, sec + int64(t.Left/time.Second)}
	switch t.Proto {
	case encap.ProtoTCP, encap.ProtoUDP, protoSCTP, protoDCCP, protoUDPLite, encap.ProtoICMP, encap.ProtoICMPv6:
		f.sport, f.dport = t.Backend.Port(), t.Client.Port()
	}
	return f, f.src.IsValid() && f.dst.IsValid() && f.src != f.dst && f.until > sec
}

// enter opens the entry of f in those of its client.
func (e *Engine) enter(r *returns, f *learnedFlow, sec int64) {
	if f.left = f.until - sec; f.left > 0 {
		r.open(f.tag(e.seed), &f.flow, sec)
	}
}

// learnedOf opens the entries of all clients that of has, and forgets the flows. mu is held.
func (e *Engine) learnedOf(of func(netip.Addr) *returns) {
	if len(e.learned.flows) == 0 {
		return
	}
	sec := seconds(e.now())
	if sec >= e.learned.until {
		e.learned.flows = nil
		return
	}
	e.learned.flows = slices.DeleteFunc(e.learned.flows, func(f learnedFlow) bool {
		r := of(f.dst)
		if r != nil {
			e.enter(r, &f, sec)
		}
		return r != nil
	})
}

// returnsOf are the pod's entries, if it has the address.
func (a *attached) returnsOf(addr netip.Addr) *returns {
	if !slices.Contains(a.addrs, addr) {
		return nil
	}
	return &a.pod.returns
}
