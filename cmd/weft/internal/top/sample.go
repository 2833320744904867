// Package top is what weft top shows: what a node's data plane does now, made of two of weftd's answers, laid
// out for a terminal of any size, and shown again and again. The model and the layout are pure.
package top

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weft/internal/cli"
	"weft/routing"
)

// Sample is what weftd said, and when.
type Sample struct {
	At     time.Time
	Status control.Status
	Peers  control.Peers
}

// Picture is what is shown of a node at one time. A rate that is not known is nil: the first sample has none,
// and neither has the first after a restart.
type Picture struct {
	Time time.Time `json:"time"`
	// Error says why weftd did not answer; then there are no rates, and the rest is as of AsOf. Note says what
	// changed since the last picture: that it answers again, or was restarted.
	Error string    `json:"error,omitempty"`
	AsOf  time.Time `json:"asOf,omitzero"`
	Note  string    `json:"note,omitempty"`
	// Seconds is the time between the two samples.
	Seconds  float64  `json:"seconds,omitempty"`
	Name     string   `json:"name,omitempty"`
	NodeID   string   `json:"nodeID,omitempty"`
	Uptime   int64    `json:"uptimeSeconds"`
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady,omitempty"`
	Alarm    string   `json:"alarm,omitempty"`
	Backend  string   `json:"backend,omitempty"`
	Path     string   `json:"path,omitempty"`
	MTU      int      `json:"mtu,omitempty"`
	// Out is to peers and In from them, in inner packets.
	Out *Rate `json:"out,omitempty"`
	In  *Rate `json:"in,omitempty"`
	// Devices are those on which the kernel counts, where it moves the packets; Out and In are then the sum of
	// the overlay's own.
	Devices []Device `json:"devices,omitempty"`
	// Drops has the reasons that occurred since the sample before.
	Drops    []Drop    `json:"drops,omitempty"`
	Workers  []Worker  `json:"workers,omitempty"`
	Offloads []Offload `json:"offloads,omitempty"`
	Peers    []Peer    `json:"peers"`
}

// Rate is traffic in one direction, each a second.
type Rate struct {
	Packets float64 `json:"packetsPerSecond"`
	Bits    float64 `json:"bitsPerSecond"`
}

// Device is one on which the kernel counts. Overlay says that it is the overlay's own; else the host's other
// packets are counted too.
type Device struct {
	Name    string `json:"name"`
	Overlay bool   `json:"overlay"`
	Out     *Rate  `json:"out,omitempty"`
	In      *Rate  `json:"in,omitempty"`
	// Lost is how many packets a second the device drops, or cannot send or receive.
	Lost *float64 `json:"lostPerSecond,omitempty"`
}

// Drop is how many packets a second are dropped for one reason. Direction is egress or ingress, or kernel for
// those that the kernel drops as a queue of weftd's is full; then Reason is the queue.
type Drop struct {
	Direction string  `json:"direction"`
	Reason    string  `json:"reason"`
	PerSecond float64 `json:"packetsPerSecond"`
}

// Worker is what one worker does. Load is the part of the time in which it does not wait for packets, from 0
// to 1. PerRead and PerWrite are packets that a system call moves, nil if there was none.
type Worker struct {
	Load     *float64 `json:"load,omitempty"`
	Packets  *float64 `json:"packetsPerSecond,omitempty"`
	PerRead  *float64 `json:"packetsPerRead,omitempty"`
	PerWrite *float64 `json:"packetsPerWrite,omitempty"`
}

// Offload is one offload. PerCall is how many packets a system call moved by it, nil if none did.
type Offload struct {
	Name    string   `json:"name"`
	State   string   `json:"state"`
	PerCall *float64 `json:"packetsPerCall,omitempty"`
}

// Peer is one other node. Its probes' result is that of its worst way.
type Peer struct {
	Name    string `json:"name"`
	NodeID  string `json:"nodeID,omitempty"`
	Address string `json:"address,omitempty"`
	Path    string `json:"path,omitempty"`
	// Out and In are nil also if the kernel moves the packets, which counts for devices and not for peers.
	Out *Rate `json:"out,omitempty"`
	In  *Rate `json:"in,omitempty"`
	// Refused is how many packets a second of the peer are dropped.
	Refused *float64 `json:"refusedPerSecond,omitempty"`
	// Answers is yes, no or unknown since Since; "" if the peer is not asked.
	Answers string    `json:"answers,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	RTT     int64     `json:"rttNanoseconds,omitempty"`
	// LossOut and LossIn are from 0 to 1; Loss is that of both together, of a peer that is asked by ICMP.
	LossOut   *float64 `json:"lossOut,omitempty"`
	LossIn    *float64 `json:"lossIn,omitempty"`
	Loss      *float64 `json:"loss,omitempty"`
	PathMTU   int      `json:"innerPathMTU,omitempty"`
	LargeLost bool     `json:"largeLost,omitempty"`
	Likely    string   `json:"likely,omitempty"`
	Look      string   `json:"look,omitempty"`
}

// Diff is what is shown after now, if before is the sample before it; nil if there was none.
func Diff(before *Sample, now Sample) Picture {
	s := now.Status
	v := Picture{
		Time: now.At, Name: s.Name, NodeID: s.NodeID, Uptime: s.Uptime, Ready: s.Ready, NotReady: s.NotReady,
		Alarm:   s.Alarm,
		Backend: s.Backend.Type, Path: s.Backend.Path, MTU: s.Backend.MTU, Peers: []Peer{},
	}
	old := Sample{}
	switch {
	case before == nil:
	case !before.Status.StartedAt.Equal(s.StartedAt) || before.Status.PID != s.PID:
		v.Note = "weftd was restarted"
	case !begunAgain(before.Status.Counters, s.Counters):
		old = *before
		v.Seconds = now.At.Sub(old.At).Seconds()
	}
	d := delta{v.Seconds}
	if v.Devices = d.devices(old.Status.Counters.Devices, s.Counters.Devices); routing.CarriesNothing(s.Backend.Path) {
		v.Out, v.In = ofOverlay(v.Devices)
	} else {
		v.Out, v.In = d.flow(old.Status.Counters.Egress, s.Counters.Egress),
			d.flow(old.Status.Counters.Ingress, s.Counters.Ingress)
	}
	v.Drops = d.drops(old.Status.Counters, s.Counters)
	v.Workers = d.workers(old.Status.Counters.Workers, s.Counters.Workers)
	v.Offloads = d.offloads(old.Status.Counters.Offloads, s.Counters.Offloads)
	was := map[identity]control.Peer{}
	for _, p := range old.Peers.Peers {
		was[identityOf(p)] = p
	}
	for _, p := range now.Peers.Peers {
		v.Peers = append(v.Peers, d.peer(was[identityOf(p)], p))
	}
	return v
}

// Gone is v after weftd has not answered: what is known stays, and no rate is.
func (v Picture) Gone(at time.Time, why error) Picture {
	v.AsOf = v.asOf()
	v.Time, v.Error, v.Note, v.Seconds = at, why.Error(), "", 0
	v.Out, v.In, v.Devices, v.Drops, v.Workers = nil, nil, nil, nil, nil
	v.Offloads, v.Peers = slices.Clone(v.Offloads), slices.Clone(v.Peers)
	for i := range v.Offloads {
		v.Offloads[i].PerCall = nil
	}
	for i := range v.Peers {
		p := &v.Peers[i]
		p.Out, p.In, p.Refused = nil, nil, nil
	}
	return v
}

// asOf is when weftd said what is shown.
func (v Picture) asOf() time.Time {
	return cmp.Or(v.AsOf, v.Time)
}

// begunAgain reports whether the counters are not those of before: weftd makes another data plane for another
// network configuration.
func begunAgain(before, now control.Counters) bool {
	return now.Egress.Received < before.Egress.Received || now.Ingress.Received < before.Ingress.Received
}

// delta makes rates of counters that were read so many seconds apart; none of 0.
type delta struct{ seconds float64 }

// rate is nil if it is not known.
func (d delta) rate(before, now uint64) *float64 {
	if d.seconds <= 0 || now < before {
		return nil
	}
	r := float64(now-before) / d.seconds
	return &r
}

func (d delta) traffic(packetsBefore, packets, bytesBefore, bytes uint64) *Rate {
	p, b := d.rate(packetsBefore, packets), d.rate(bytesBefore, bytes)
	if p == nil || b == nil {
		return nil
	}
	return &Rate{*p, 8 * *b}
}

func (d delta) flow(before, now control.Flow) *Rate {
	return d.traffic(before.Delivered, now.Delivered, before.DeliveredBytes, now.DeliveredBytes)
}

func (d delta) devices(before, now []control.DeviceCounters) (out []Device) {
	for _, n := range now {
		v := Device{Name: n.Name, Overlay: n.Overlay}
		for _, b := range before {
			if b.Name == n.Name {
				v.Out, v.In = d.traffic(b.TxPackets, n.TxPackets, b.TxBytes, n.TxBytes),
					d.traffic(b.RxPackets, n.RxPackets, b.RxBytes, n.RxBytes)
				v.Lost = d.rate(b.TxDropped+b.TxErrors+b.RxDropped+b.RxErrors,
					n.TxDropped+n.TxErrors+n.RxDropped+n.RxErrors)
			}
		}
		out = append(out, v)
	}
	return out
}

// ofOverlay adds up the overlay's own devices; nil if there is none, or none whose rates are known.
func ofOverlay(l []Device) (out, in *Rate) {
	add := func(sum, r *Rate) *Rate {
		if sum == nil {
			sum = &Rate{}
		}
		return &Rate{sum.Packets + r.Packets, sum.Bits + r.Bits}
	}
	for _, d := range l {
		if d.Overlay && d.Out != nil && d.In != nil {
			out, in = add(out, d.Out), add(in, d.In)
		}
	}
	return out, in
}

func (d delta) drops(before, now control.Counters) (out []Drop) {
	add := func(direction, reason string, before, now uint64) {
		if r := d.rate(before, now); r != nil && *r > 0 {
			out = append(out, Drop{direction, reason, *r})
		}
	}
	for _, f := range []struct {
		direction   string
		before, now []control.Drop
	}{{"egress", before.Egress.Drops, now.Egress.Drops}, {"ingress", before.Ingress.Drops, now.Ingress.Drops}} {
		for _, n := range f.now {
			add(f.direction, n.Reason, packetsOf(f.before, n.Reason), n.Packets)
		}
	}
	add("kernel", "socket", before.SocketOverflow, now.SocketOverflow)
	add("kernel", "device", before.DeviceDropped, now.DeviceDropped)
	slices.SortStableFunc(out, func(a, b Drop) int { return cmp.Compare(b.PerSecond, a.PerSecond) })
	return out
}

func packetsOf(l []control.Drop, reason string) uint64 {
	for _, d := range l {
		if d.Reason == reason {
			return d.Packets
		}
	}
	return 0
}

func (d delta) workers(before, now []control.Worker) (out []Worker) {
	for i, n := range now {
		var w Worker
		if len(before) == len(now) && n.Reads >= before[i].Reads && n.Writes >= before[i].Writes {
			b := before[i]
			w.Packets = d.rate(b.Egress+b.Ingress, n.Egress+n.Ingress)
			if load := d.rate(uint64(b.Busy), uint64(n.Busy)); load != nil {
				*load = min(1, *load/1e9)
				w.Load = load
			}
			if moved := n.Egress + n.Ingress - b.Egress - b.Ingress; d.seconds > 0 {
				w.PerRead, w.PerWrite = each(moved, n.Reads-b.Reads), each(moved, n.Writes-b.Writes)
			}
		}
		out = append(out, w)
	}
	return out
}

func each(packets, calls uint64) *float64 {
	if calls == 0 {
		return nil
	}
	r := float64(packets) / float64(calls)
	return &r
}

func (d delta) offloads(before, now []control.Offload) (out []Offload) {
	for _, n := range now {
		o := Offload{Name: n.Name, State: n.State}
		for _, b := range before {
			if b.Name == n.Name && n.Calls >= b.Calls && n.Packets >= b.Packets && d.seconds > 0 {
				o.PerCall = each(n.Packets-b.Packets, n.Calls-b.Calls)
			}
		}
		out = append(out, o)
	}
	return out
}

// identity is what a peer is known by from one sample to the next. Several nodes may have one name.
type identity struct {
	name, id string
	subnet   netip.Prefix
}

func identityOf(p control.Peer) identity {
	i := identity{name: p.Name, id: p.NodeID}
	if len(p.Subnets) > 0 {
		i.subnet = p.Subnets[0]
	}
	return i
}

func (d delta) peer(b, now control.Peer) Peer {
	p := Peer{Name: now.Name, NodeID: now.NodeID, Path: now.Path}
	if now.Address.IsValid() {
		p.Address = now.Address.String()
	}
	if b.Traffic != nil && now.Traffic != nil {
		p.Out = d.traffic(b.TxPackets, now.TxPackets, b.TxBytes, now.TxBytes)
		p.In = d.traffic(b.RxPackets, now.RxPackets, b.RxBytes, now.RxBytes)
		p.Refused = d.rate(cli.Total(b.Drops), cli.Total(now.Drops))
	}
	p.probes(now.Probes)
	return p
}

// Worst is a peer of which only its probes are known.
func Worst(l []control.Probe) (p Peer) {
	p.probes(l)
	return p
}

// probes takes the worst of what is known of the peer's addresses, since pods have addresses of each family.
func (p *Peer) probes(l []control.Probe) {
	badness := []string{"", "yes", "unknown", "no"}
	for _, q := range l {
		if slices.Index(badness, q.Answers) > slices.Index(badness, p.Answers) {
			p.Answers, p.Since = q.Answers, q.Since
		}
		p.RTT = max(p.RTT, q.RTT)
		if q.PathMTU > 0 && (p.PathMTU == 0 || q.PathMTU < p.PathMTU) {
			p.PathMTU = q.PathMTU
		}
		p.LargeLost = p.LargeLost || q.LargeLost
		p.LossOut, p.LossIn, p.Loss = cli.Larger(p.LossOut, q.LossOut), cli.Larger(p.LossIn, q.LossIn),
			cli.Larger(p.Loss, q.Loss)
		if p.Likely == "" {
			p.Likely, p.Look = q.Likely, q.Look
		}
	}
}

// Keys by which peers are sorted.
const (
	ByTraffic = "traffic"
	ByOut     = "out"
	ByIn      = "in"
	ByRTT     = "rtt"
	ByLoss    = "loss"
	ByRefused = "refused"
	ByName    = "name"
)

// SortKeys are those by which peers can be sorted, the usual one first.
func SortKeys() []string { return []string{ByTraffic, ByOut, ByIn, ByRTT, ByLoss, ByRefused, ByName} }

// sorted returns the peers in the order of a key, the most first. Peers that do not answer come before all
// when it is about the way to them. Of equal ones the name decides, so that rows stay where they are.
func sorted(peers []Peer, key string) []Peer {
	value := func(p Peer) float64 {
		switch key {
		case ByOut:
			return bits(p.Out)
		case ByIn:
			return bits(p.In)
		case ByRTT:
			return silence(p) + float64(p.RTT)
		case ByLoss:
			return silence(p) + worstLoss(p)
		case ByRefused:
			return number(p.Refused)
		case ByName:
			return 0
		}
		return bits(p.Out) + bits(p.In)
	}
	out := slices.Clone(peers)
	slices.SortStableFunc(out, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(value(b), value(a)), strings.Compare(a.Name+a.Address, b.Name+b.Address))
	})
	return out
}

// silence is more than any value of a peer that answers.
func silence(p Peer) float64 {
	if p.Answers == "no" {
		return 1e18
	}
	return 0
}

func worstLoss(p Peer) float64 { return max(number(p.LossOut), number(p.LossIn), number(p.Loss)) }

func bits(r *Rate) float64 {
	if r == nil {
		return 0
	}
	return r.Bits
}

func number(f *float64) float64 {
	if f == nil {
		return 0
	}
	return *f
}
