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

// Table maps addresses to peers, and holds the rules for senders. It is immutable once it is swapped in; a
// worker uses one table for the length of a batch.
type Table struct {
	format  encap.Format
	spec    Spec
	routes  bart.Table[*Peer]    // inner destination to peer, longest prefix first
	left    bart.Table[*Peer]    // the same of those to whom there is no way
	senders map[netip.Addr]*Peer // outer source to peer
	self    map[netip.Addr]bool  // our own outer addresses
	local   bart.Lite            // inner destinations that are ours
	vtep    vtep                 // ours, in format vxlan
	peers   []*Peer
}

// Peer is one other node in a Table.
type Peer struct {
	spec    PeerSpec
	sources []netip.Prefix // inner sources that are the peer's
	inner6  bool           // takes inner IPv6
	ecn     bool           // brings the outer ECN field back in
	packs   bool           // may put several packets into a datagram
	probes  bool           // answers probes, and asks
	maxSize int            // largest inner packet, bytes, without a learnt path MTU
	linkMTU int            // the underlay's MTU, bytes
	cost    int            // bytes that encapsulation adds towards this peer
	// head goes before an inner packet, headLen bytes of it: none in format ip.
	head    [encap.VXLANOverhead]byte
	headLen int
	state   *peerState // outlives the table
}

// ErrSourceCheck says that Spec.Check is none of the checks.
var ErrSourceCheck = errors.New("the source check is none of strict, outer and off")

// PeerError is a fault of one peer of a Spec, which is therefore not in the table.
type PeerError struct {
	Index int // in Spec.Peers
	Name  string
	Err   error
}

// Error names the peer.
func (e *PeerError) Error() string { return fmt.Sprintf("peer %s: %v", e.Name, e.Err) }

// Unwrap returns what is wrong.
func (e *PeerError) Unwrap() error { return e.Err }

// NewTable builds the table for format f from s. It is pure. The error joins every fault found. The table
// then holds everything else: one bad peer costs only itself, and is a *PeerError. If s.Check is none of the
// checks, there is no table, and the error is ErrSourceCheck.
func NewTable(f encap.Format, s Spec) (*Table, error) { return build(f, s, &Table{}) }

// Next builds the table that replaces t. The two share the peers that did not change, since usually few of
// many peers change.
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
	t.spec.Peers = nil // each is kept in its Peer
	var faults []error
	for i := range s.Peers {
		if err := t.addPeer(s.Peers[i], before); err != nil {
			faults = append(faults, &PeerError{Index: i, Name: s.Peers[i].Name, Err: err})
			t.leave(&s.Peers[i])
		}
	}
	for i := range s.LeftOut {
		t.leave(&s.LeftOut[i])
	}
	t.spec.LeftOut = nil
	return t, errors.Join(faults...)
}

// leave notes whose subnets those are of a peer that is not in the table: nobody here may have their
// addresses all the same.
func (t *Table) leave(s *PeerSpec) {
	p := &Peer{spec: PeerSpec{Name: s.Name, Addr: s.Addr}}
	for _, n := range s.Subnets {
		if n.IsValid() && n.Bits() > 0 && !t.local.OverlapsPrefix(n.Masked()) {
			t.left.Insert(n.Masked(), p)
		}
	}
}

// addPeer checks one peer whole before it enters any of the maps. One that is the same in before is taken
// from there.
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
	if p == nil || !t.alike(before) || !p.is(s, t.format) {
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

// outer is one of the addresses that the peer sends from: Addr before the first of Sources.
func (s *PeerSpec) outer(i int) netip.Addr {
	if i < 0 {
		return s.Addr.Unmap()
	}
	return s.Sources[i].Unmap()
}

// newPeer makes a peer that has been checked. It goes on counting where was left off, if that
// has the same address.
func (t *Table) newPeer(s PeerSpec, was *Peer) (*Peer, error) {
	vxlan := t.format == encap.FormatVXLAN
	ipip := t.format == encap.FormatIPIP // flannel's peers are kernels there, too, which know IPv4 only and ECN
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
		if err := p.setHead(t.vtep); err != nil {
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
	// A smaller MTU that a record claims is honoured down to what every IP host must take
	// (RFC 791 section 3.2): a hostile one must not make us send crumbs.
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

// host is the prefix of one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()) }

// alike reports whether a peer would be the same in both tables.
func (t *Table) alike(u *Table) bool {
	return t.format == u.format && t.vtep == u.vtep && t.spec.UnderlayMTU == u.spec.UnderlayMTU
}

// is reports whether the peer would be made from s too, in a table that is alike.
func (p *Peer) is(s PeerSpec, f encap.Format) bool {
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

// mayUse reports whether the peer may send packets with this inner source.
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

// outer is where datagrams to the peer go, whose tunnel has that port.
func (p *Peer) outer(port uint16) netip.AddrPort { return netip.AddrPortFrom(p.spec.Addr, port) }

// maxInner is the largest inner packet that the path to the peer carries now
// (Unix nanoseconds), in bytes.
func (p *Peer) maxInner(now int64) int {
	if m := p.state.path.Get(now); m != 0 {
		return min(p.maxSize, m-p.cost)
	}
	return p.maxSize
}

// stats is the peers' counters at now (Unix nanoseconds), in order of their outer addresses.
func (t *Table) stats(now int64) []PeerStats {
	l := make([]PeerStats, 0, len(t.peers))
	for _, p := range t.peers {
		s := p.stats(now)
		s.Unreachable.Doubtful = t.doubts(p, refusedBy{s.Unreachable.By, s.Unreachable.Why}, now)
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
		Unreachable: p.state.refusal.get(),
	}
	s.LastRx = unixTime(p.state.lastRx.Load())
	for r := range s.Drops {
		s.Drops[r] = p.state.drops[r].Load()
	}
	return s
}
