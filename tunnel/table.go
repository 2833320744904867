package tunnel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"weft/encap"
	"weft/tunnel/port"
)

// Table maps addresses to peers, and holds the rules for sources. It is immutable. A worker uses one table
// for a whole batch.
type Table struct {
	format  encap.Format
	spec    Spec
	routes  bart.Table[*Peer]    // inner destination to peer, longest prefix first
	leftOut bart.Table[*Peer]    // subnets of peers that are not in the table
	senders map[netip.Addr]*Peer // outer source to peer
	self    map[netip.Addr]bool  // our own outer addresses
	local   bart.Lite            // this node's inner destinations
	vtep    vtep                 // this node's, in format vxlan
	peers   []*Peer
}

// Peer is one other node in a Table.
type Peer struct {
	spec    PeerSpec
	sources []netip.Prefix // inner sources that the peer may use
	inner6  bool           // accepts inner IPv6
	ecn     bool           // decapsulates the outer ECN field (RFC 6040)
	packs   bool           // may put several packets into one datagram
	probes  bool           // answers and sends probes
	maxSize int            // largest inner packet without a learnt path MTU, bytes
	linkMTU int            // the underlay's MTU, bytes
	cost    int            // bytes that encapsulation adds
	// header is put before each inner packet. headerLen is its length, 0 in format ip.
	header    [encap.VXLANOverhead]byte
	headerLen int
	state     *peerState // outlives the table
}

// ErrSourceCheck means that Spec.Check has no valid value.
var ErrSourceCheck = errors.New("the source check is none of strict, outer and off")

// PeerError is a fault of one peer of a Spec, which is therefore not in the table.
type PeerError struct {
	Index int // in Spec.Peers
	Name  string
	Err   error
}

// Error implements error.
func (e *PeerError) Error() string { return fmt.Sprintf("peer %s: %v", e.Name, e.Err) }

// Unwrap returns the fault without the peer's name.
func (e *PeerError) Unwrap() error { return e.Err }

// NewTable builds the table for format f from s. The returned error joins every fault. An invalid peer is
// reported as a *PeerError and left out; the table has all others. If s.Check is invalid, NewTable returns no
// table and ErrSourceCheck.
func NewTable(f encap.Format, s Spec) (*Table, error) { return build(f, s, &Table{}) }

// Next builds the table that replaces t. The tables share the peers that did not change, since usually few
// do.
func (t *Table) Next(s Spec) (*Table, error) { return build(t.format, s, t) }

func build(f encap.Format, s Spec, before *Table) (*Table, error) {
	if s.Check != CheckStrict && s.Check != CheckOuter && s.Check != CheckOff {
		return nil, fmt.Errorf("%w: %v", ErrSourceCheck, s.Check)
	}
	t := &Table{
		format:  f,
		spec:    s,
		senders: make(map[netip.Addr]*Peer, len(s.Peers)),
		self:    make(map[netip.Addr]bool, len(s.Self)),
		peers:   make([]*Peer, 0, len(s.Peers)),
		vtep:    vtep{vni: s.VNI, mac4: s.MAC4, mac6: s.MAC6},
	}
	for _, a := range s.Self {
		t.self[a.Unmap()] = true
	}
	for _, p := range s.Local {
		t.local.Insert(p.Masked())
	}
	t.spec.Peers = nil // each Peer has its own
	var faults []error
	for i := range s.Peers {
		if err := t.addPeer(s.Peers[i], before); err != nil {
			faults = append(faults, &PeerError{Index: i, Name: s.Peers[i].Name, Err: err})
			t.addLeftOut(&s.Peers[i])
		}
	}
	for i := range s.LeftOut {
		t.addLeftOut(&s.LeftOut[i])
	}
	t.spec.LeftOut = nil
	return t, errors.Join(faults...)
}

// addLeftOut records the subnets of a peer that is not in the table, since no source on this host may be in
// them.
func (t *Table) addLeftOut(s *PeerSpec) {
	p := &Peer{spec: PeerSpec{Name: s.Name, Addr: s.Addr}}
	for _, n := range s.Subnets {
		if n.IsValid() && n.Bits() > 0 && !t.local.OverlapsPrefix(n.Masked()) {
			t.leftOut.Insert(n.Masked(), p)
		}
	}
}

// addPeer checks s, and adds its peer to t only if all of it is valid. An unchanged peer is taken from
// before.
func (t *Table) addPeer(s PeerSpec, before *Table) error {
	s.Addr = s.Addr.Unmap()
	if !s.Addr.IsValid() || s.Addr.IsUnspecified() || s.Addr.IsMulticast() {
		return fmt.Errorf("outer address %v cannot be sent to", s.Addr)
	}
	for i := -1; i < len(s.Sources); i++ {
		a := s.outer(i)
		if t.self[a] {
			return fmt.Errorf("outer address %v is our own", a)
		}
		if other := t.senders[a]; other != nil {
			return fmt.Errorf("outer address %v is %s's", a, other.spec.Name)
		}
	}
	for _, n := range s.Subnets {
		if !n.IsValid() || n.Bits() == 0 {
			return fmt.Errorf("subnet %v is not one node's", n)
		}
		if t.routes.OverlapsPrefix(n.Masked()) {
			return fmt.Errorf("subnet %v overlaps another peer's", n)
		}
		if t.local.OverlapsPrefix(n.Masked()) {
			return fmt.Errorf("subnet %v overlaps our own", n)
		}
	}

	p := before.senders[s.Addr]
	if p == nil || !t.sameSettings(before) || !p.unchanged(s, t.format) {
		var err error
		if p, err = t.newPeer(s, p); err != nil {
			return err
		}
	}
	for _, n := range s.Subnets {
		t.routes.Insert(n.Masked(), p)
	}
	for i := -1; i < len(s.Sources); i++ {
		t.senders[s.outer(i)] = p
	}
	t.peers = append(t.peers, p)
	return nil
}

// outer returns an outer address that the peer sends from: Addr for -1, else the ith of Sources.
func (s *PeerSpec) outer(i int) netip.Addr {
	if i < 0 {
		return s.Addr.Unmap()
	}
	return s.Sources[i].Unmap()
}

// newPeer makes a peer from s, which is valid. The peer takes over the state of was if that has the same
// address.
func (t *Table) newPeer(s PeerSpec, was *Peer) (*Peer, error) {
	vxlan := t.format == encap.FormatVXLAN
	ipip := t.format == encap.FormatIPIP // flannel's peers use the kernel's ipip: IPv4 only, and RFC 6040
	p := &Peer{spec: s, inner6: s.Weft && !ipip || vxlan, ecn: s.Weft || vxlan || ipip, packs: s.Weft &&
		!vxlan && !ipip,
		probes: s.Weft && !vxlan && s.Recv&port.RecvProbe != 0}
	if ipip {
		p.spec.Recv &= port.RecvProbe
		if !s.Addr.Is4() {
			return nil, fmt.Errorf("outer address %v: ipip is carried by IPv4 only", s.Addr)
		}
	}
	if vxlan {
		p.spec.Recv = 0
		if err := p.setHeader(t.vtep); err != nil {
			return nil, err
		}
	}
	if was != nil && was.spec.Addr == s.Addr {
		p.state = was.state
	} else {
		p.state = new(peerState)
	}
	p.linkMTU = t.spec.UnderlayMTU
	p.cost = t.format.Overhead(s.Addr.Is6())
	p.maxSize = p.linkMTU - p.cost
	// A smaller MTU from a record is believed down to the minimum of RFC 791 section 3.2. A hostile record must
	// not make us send tiny packets.
	if s.MTU >= encap.MinMTU4 {
		p.maxSize = min(p.maxSize, s.MTU)
	}
	p.sources = make([]netip.Prefix, 0, len(s.Subnets)+len(s.InnerSources))
	for _, n := range s.Subnets {
		p.sources = append(p.sources, n.Masked())
	}
	for _, a := range s.InnerSources {
		p.sources = append(p.sources, host(a))
	}
	p.spec.Subnets, p.spec.InnerSources = nil, nil // they are in sources
	return p, nil
}

// host returns the prefix that contains only a.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()) }

// sameSettings reports whether t and u have the same values of the settings that go into each Peer.
func (t *Table) sameSettings(u *Table) bool {
	return t.format == u.format && t.vtep == u.vtep && t.spec.UnderlayMTU == u.spec.UnderlayMTU
}

// unchanged reports whether newPeer would make the same peer from s.
func (p *Peer) unchanged(s PeerSpec, f encap.Format) bool {
	if f == encap.FormatVXLAN {
		s.Recv = 0
	}
	if f == encap.FormatIPIP {
		s.Recv &= port.RecvProbe
	}
	w := &p.spec
	if w.Name != s.Name || w.Addr != s.Addr || w.Weft != s.Weft || w.Recv != s.Recv || w.MTU != s.MTU ||
		w.MAC != s.MAC ||
		!slices.Equal(w.Sources, s.Sources) || len(p.sources) != len(s.Subnets)+len(s.InnerSources) {
		return false
	}
	for i, n := range s.Subnets {
		if p.sources[i] != n.Masked() {
			return false
		}
	}
	for i, a := range s.InnerSources {
		if p.sources[len(s.Subnets)+i] != host(a) {
			return false
		}
	}
	return true
}

// mayUse reports whether the peer may send packets with the inner source src.
func (p *Peer) mayUse(src netip.Addr, also []netip.Prefix) bool {
	for _, n := range p.sources {
		if n.Contains(src) {
			return true
		}
	}
	for _, n := range also {
		if n.Contains(src) {
			return true
		}
	}
	return false
}

// outer returns the destination of datagrams to the peer.
func (p *Peer) outer(port uint16) netip.AddrPort { return netip.AddrPortFrom(p.spec.Addr, port) }

// maxInner returns the largest inner packet, in bytes, that the path to the peer carries at now (Unix
// nanoseconds).
func (p *Peer) maxInner(now int64) int {
	if m := p.state.path.Get(now); m != 0 {
		return min(p.maxSize, m-p.cost)
	}
	return p.maxSize
}

// stats returns the counters of all peers at now (Unix nanoseconds), sorted by outer address.
func (t *Table) stats(now int64) []PeerStats {
	l := make([]PeerStats, 0, len(t.peers))
	for _, p := range t.peers {
		s := p.stats(now)
		s.Unreachable.Doubtful = t.doubtful(p, icmpReport{s.Unreachable.By, s.Unreachable.Why}, now)
		l = append(l, s)
	}
	slices.SortFunc(l, func(a, b PeerStats) int { return a.Addr.Compare(b.Addr) })
	return l
}

func (p *Peer) stats(now int64) PeerStats {
	s := PeerStats{
		Name: p.spec.Name, Addr: p.spec.Addr,
		TxPackets: p.state.txPackets.Load(), TxBytes: p.state.txBytes.Load(),
		RxPackets: p.state.rxPackets.Load(), RxBytes: p.state.rxBytes.Load(),
		MTU: p.maxInner(now), PathMTU: p.state.path.Get(now),
		Unreachable: p.state.unreachable.get(),
	}
	s.LastRx = unixTime(p.state.lastRx.Load())
	for r := range s.Drops {
		s.Drops[r] = p.state.drops[r].Load()
	}
	return s
}
