package control

import (
	"net/netip"
	"slices"

	"weft/lease"
	"weft/routing"
	"weft/routing/probe"
	"weft/tunnel"
	"weft/tunnel/port"
)

// Peers returns the page of s, which has to have PartPeers.
func (s *Snapshot) Peers() Peers {
	out := Peers{Peers: []Peer{}, Probing: s.Probing}
	var peers []tunnel.PeerStats
	if s.Plane != nil {
		peers = s.Plane.Peers
	}
	stats := map[netip.Addr][]tunnel.PeerStats{}
	for _, p := range peers {
		stats[p.Addr] = append(stats[p.Addr], p)
	}
	bySubnets := map[lease.Subnets][]routing.Reached{}
	for _, r := range s.Backend.Reached {
		bySubnets[r.Subnets] = append(bySubnets[r.Subnets], r)
	}
	asked := make(map[netip.Addr]probe.State, len(s.Probes))
	for _, st := range s.Probes {
		asked[st.Addr] = st
	}
	for _, r := range s.Records {
		p := PeerOf(r)
		p.Probes = probesOf(asked, r)
		found := bySubnets[r.Subnets]
		for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
			if refused(found, a) { // the counters of that address are another peer's
				continue
			}
			for _, counted := range stats[a] {
				if counted.Name == p.Name {
					p.Path = s.Backend.Path
					fill(&p, counted)
				}
			}
		}
		p.Reached, p.Encryption = reached(found), EncryptionOf(s.Encrypted, p.Subnets)
		if slices.ContainsFunc(found, func(w routing.Reached) bool { return w.How != routing.HowSkipped }) {
			p.Path = s.Backend.Path
			if p.MTU == 0 {
				p.MTU = s.Backend.MTU
				if r.Weft != nil && r.Weft.MTU > 0 { // its routes have the smaller one
					p.MTU = min(p.MTU, r.Weft.MTU)
				}
			}
		}
		out.Peers = append(out.Peers, p)
	}
	if s.Plane != nil {
		for _, x := range s.Plane.Strangers {
			out.Strangers = append(out.Strangers, Stranger{
				Address: x.Addr, Packets: x.Packets, LastSeen: x.LastRx, Admit: port.DropUnknownPeer.Admit(),
			})
		}
	}
	return out
}

// refused reports whether a record is not used at an address of its own.
func refused(found []routing.Reached, a netip.Addr) bool {
	skipped := false
	for _, w := range found {
		if w.Via == a && w.How != routing.HowSkipped {
			return false
		}
		skipped = skipped || w.Via == a
	}
	return skipped
}

// PeerOf returns the peer as its record alone describes it.
func PeerOf(r lease.Record) Peer {
	p := Peer{Name: r.Called(), NodeID: r.Node(), Weft: r.Weft != nil, Address: r.Address(), Expires: r.Expires}
	if r.Weft != nil {
		p.Recv = r.Weft.Recv
	}
	for _, s := range []netip.Prefix{r.V4, r.V6} {
		if s.IsValid() {
			p.Subnets = append(p.Subnets, s)
		}
	}
	return p
}

// reached converts how a peer's subnets are reached.
func reached(rs []routing.Reached) []Reached {
	var out []Reached
	for _, r := range rs {
		out = append(out, Reached{Subnet: r.Subnet, How: r.How.String(), Via: r.Via, Reason: r.Reason})
	}
	return out
}

// fill adds what the data plane knows, for each of the peer's outer addresses that it sends to.
func fill(p *Peer, s tunnel.PeerStats) {
	if p.MTU == 0 { // the first
		p.Address, p.MTU = s.Addr, s.MTU
	}
	if p.Traffic == nil {
		p.Traffic = &Traffic{}
	}
	p.MTU = min(p.MTU, s.MTU)
	if s.PathMTU > 0 && (p.PathMTU == 0 || s.PathMTU < p.PathMTU) {
		p.PathMTU = s.PathMTU
	}
	p.TxPackets, p.TxBytes = p.TxPackets+s.TxPackets, p.TxBytes+s.TxBytes
	p.RxPackets, p.RxBytes = p.RxPackets+s.RxPackets, p.RxBytes+s.RxBytes
	if s.LastRx.After(p.LastSeen) {
		p.LastSeen = s.LastRx
	}
	p.Drops = addDrops(p.Drops, drops(s.Drops))
	if u := s.Unreachable; u.Count > 0 && !u.Doubtful &&
		(p.Unreachable == nil || u.Last.After(p.Unreachable.Last)) {
		p.Unreachable = &Unreachable{Says: u.Why.String(), By: u.By, Count: u.Count, Last: u.Last}
	}
}

// addDrops adds up the counts of the same reason.
func addDrops(a, b []Drop) []Drop {
	for _, d := range b {
		if i := slices.IndexFunc(a, func(e Drop) bool { return e.Reason == d.Reason }); i >= 0 {
			a[i].Packets += d.Packets
		} else {
			a = append(a, d)
		}
	}
	return a
}

// probesOf converts what is known of the addresses of one node: those of its subnets, or where there is no
// tunnel its own.
func probesOf(asked map[netip.Addr]probe.State, r lease.Record) []Probe {
	var out []Probe
	for _, a := range []netip.Addr{r.V4.Masked().Addr(), r.V6.Masked().Addr(), r.PublicIP, r.PublicIPv6} {
		s, ok := asked[a]
		if !ok {
			continue
		}
		p := Probe{
			Address: s.Addr, By: "udp", Answers: s.Answers.String(), Since: s.Since, LastAnswer: s.Answered,
			RTT: s.RTT.Nanoseconds(), MinRTT: s.MinRTT.Nanoseconds(), PathMTU: s.PathMTU, LargeLost: s.Hole,
			Lossy:   s.Lossy,
			Silence: SilenceOf(s.Silence), Unsent: s.Unsent,
		}
		share := func(l probe.Loss) *float64 {
			if l.Of == 0 {
				return nil
			}
			f := l.Share()
			return &f
		}
		p.LossOut, p.LossIn = share(s.Out), share(s.In)
		if s.Port == 0 {
			p.By, p.Loss, p.LossOut, p.LossIn = "icmp", share(s.Out), nil, nil
		}
		out = append(out, p)
	}
	return out
}

// EncryptionOf is what is known of one peer, once for each device that it is a peer of.
func EncryptionOf(known map[netip.Prefix]Encryption, subnets []netip.Prefix) (out []Encryption) {
	for _, n := range subnets {
		if x, ok := known[n.Masked()]; ok && (len(out) == 0 || out[len(out)-1].Device != x.Device) {
			out = append(out, x)
		}
	}
	return out
}

// Labels are names of peers, of which no two are alike.
type Labels struct {
	// Records are those of Snapshot.Records, and Traffic those of Plane.Peers; "" for a peer that cannot be
	// told from another.
	Records, Traffic []string
	known            map[place]string
}

// place is where a peer is known from, in the data plane and in the records.
type place struct {
	name string
	addr netip.Addr
}

// Labels names the peers. Nodes of one name are told apart by their identities, and a copied node, which has
// another's identity too, by its address.
func (s *Snapshot) Labels() Labels {
	l := Labels{Records: make([]string, len(s.Records)), known: make(map[place]string, len(s.Records))}
	times := make(map[string]int, len(s.Records))
	for i := range s.Records {
		times[s.Records[i].Called()]++
	}
	seen := make(map[string]bool, len(s.Records))
	for i := range s.Records {
		r := &s.Records[i]
		name := label(r, times[r.Called()] > 1)
		if seen[name] {
			name += " " + r.Address().String()
		}
		if seen[name] {
			continue
		}
		seen[name], l.Records[i] = true, name
		for _, a := range [...]netip.Addr{r.PublicIP, r.PublicIPv6} {
			if a.IsValid() {
				l.known[place{r.Called(), a}] = name
			}
		}
	}
	if s.Plane == nil {
		return l
	}
	l.Traffic = make([]string, len(s.Plane.Peers))
	clear(seen)
	for i := range s.Plane.Peers {
		p := &s.Plane.Peers[i]
		name := p.Name
		if known := l.Of(name, p.Addr); known != "" {
			name = known
		}
		if seen[name] {
			name += " " + p.Addr.String()
		}
		if !seen[name] {
			seen[name], l.Traffic[i] = true, name
		}
	}
	return l
}

func label(r *lease.Record, ambiguous bool) string {
	if id := r.Node(); ambiguous && id != "" && id != r.Called() {
		return r.Called() + " " + id
	}
	return r.Called()
}

// Of returns the label of the peer that is called name and has the underlay address addr; "" if no record
// says so.
func (l Labels) Of(name string, addr netip.Addr) string { return l.known[place{name, addr}] }
