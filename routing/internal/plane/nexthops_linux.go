package plane

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"weft/encap"
	"weft/routing/internal/kernel"
	"weft/tunnel"
	"weft/tunnel/port"
)

// hopState is what the next hops in use were made from. The Plane's caller guards it.
type hopState struct {
	key    hopKey
	peers  []netip.Addr // outer addresses, sorted
	routes hopRoutes
	stale  bool // the routes have to be asked for anew
	macs   map[netip.Addr]encap.MAC
	took   time.Duration            // how long the last asking for routes took; 0 once AskingTook said so
	silent map[netip.Addr]bool      // neighbours that the kernel asked for in vain; never changed, but replaced
	asked  map[netip.Addr]time.Time // when we last had it ask for one of them
	closed int                      // how many peers are undeliverable
}

// forget is for a link about which nothing is known any more.
func (h *hopState) forget() {
	h.key, h.routes, h.stale, h.macs, h.silent, h.asked = hopKey{}, hopRoutes{}, true, nil, nil, nil
}

// hopKey is what every next hop depends on.
type hopKey struct {
	link           kernel.EtherInfo
	local4, local6 netip.AddrPort
}

// setPeers takes the outer addresses of other peers, but for those that are refused.
func (h *hopState) setPeers(peers []tunnel.PeerSpec, refused []*tunnel.PeerError) {
	now := make([]netip.Addr, 0, len(peers))
	out := make(map[int]bool, len(refused))
	for _, r := range refused {
		out[r.Index] = true
	}
	for i := range peers {
		if !out[i] {
			now = append(now, peers[i].Addr)
		}
	}
	slices.SortFunc(now, netip.Addr.Compare)
	now = slices.Compact(now)
	h.stale = h.stale || !slices.Equal(h.peers, now)
	h.peers = now
}

// interest is what the next hops depend on, for the monitor.
func (h *hopState) interest() kernel.HopInterest {
	if h.key == (hopKey{}) {
		return kernel.HopInterest{}
	}
	i := kernel.HopInterest{Link: h.key.link.Index, Others: h.routes.others, Peers: h.peers, Silent: h.silent,
		MACs: make(map[netip.Addr]encap.MAC, len(h.routes.wanted))}
	for via := range h.routes.wanted {
		i.MACs[via] = h.macs[via]
	}
	return i
}

// UpdateNextHops hands the ports on path raw the next hops of all peers, if they changed, and the data plane
// on any path the peers whose next hop answers nobody. It asks the kernel for all routes with
// kernel.ChangedRoutes, for other peers, and where it did not answer. Neighbours are listed each time: a listing
// for all peers. link is the underlay's.
func (p *Plane) UpdateNextHops(link string, c kernel.Change) error {
	err := p.readNextHops(link, c)
	if err != nil && len(p.raws()) == 0 {
		// The sockets need none of it, and a sandbox may not have it.
		p.log.Debug("neighbours are not followed", "error", err)
		p.next.forget()
		err = nil
	}
	p.Refuse()
	return err
}

func (p *Plane) readNextHops(name string, c kernel.Change) error {
	h, ports := &p.next, p.raws()
	link, err := p.out.Ether(name)
	if err != nil || len(ports) > 0 && link.Index != ports[0].link { // lost: the ports follow when it is back
		for _, f := range ports {
			f.feed(nil)
		}
		h.forget()
		return nil
	}
	key := hopKey{link: link}
	for i, local := range []*netip.AddrPort{&key.local4, &key.local6} {
		if s := p.sockets[i]; s.id != 0 {
			*local = s.local
		}
	}
	if key.link != h.key.link { // without a carrier it forgot its neighbours
		h.silent, h.asked = nil, nil
	}
	if h.stale || key != h.key || c&kernel.ChangedRoutes != 0 {
		if err := p.askRoutes(key); err != nil {
			return err
		}
	}
	ns, err := p.out.Neighbours(link.Index)
	if err != nil {
		return err
	}
	h.macs, h.silent = neighbourMACs(ns, h.routes.wanted), silentNeighbours(h.silent, ns, h.routes.wanted)
	hops, changed := nextHops(h.routes, h.macs, link.MAC), false
	for _, f := range ports {
		changed = f.feed(hops) || changed
	}
	if key != h.key { // what changed meanwhile was nothing that the monitor looked for
		p.o.Nudge(kernel.ChangedRoutes | kernel.ChangedNeighbours)
	} else if changed {
		p.o.Nudge(kernel.ChangedNeighbours)
	}
	h.key = key
	return nil
}

// AskingTook is how long asking for routes took the last time since it was asked; 0 if there was none.
func (p *Plane) AskingTook() time.Duration {
	took := p.next.took
	p.next.took = 0
	return took
}

// askRoutes asks for the routes to all peers.
func (p *Plane) askRoutes(key hopKey) error {
	h, began := &p.next, time.Now()
	routes := newHopRoutes(len(h.peers))
	h.stale = true // until all have answers
	split, _ := slices.BinarySearchFunc(h.peers, netip.IPv6Unspecified(), netip.Addr.Compare)
	answered := true
	for _, f := range []struct {
		dsts  []netip.Addr
		local netip.AddrPort
	}{{h.peers[:split], key.local4}, {h.peers[split:], key.local6}} {
		if !f.local.IsValid() {
			continue
		}
		answers, err := p.out.RoutesTo(f.dsts, f.local)
		if err != nil {
			return err
		}
		for i, a := range answers {
			answered = routes.add(f.dsts[i], a, key.link) && answered
		}
	}
	if h.routes, h.stale = routes, !answered; len(h.peers) > 0 {
		h.took = time.Since(began)
	}
	return nil
}

// feed hands the port the next hops if they are others than before.
func (f *frames) feed(hops map[netip.Addr]port.NextHop) (changed bool) {
	if maps.Equal(f.hops, hops) {
		return false
	}
	f.port.SetNextHops(hops)
	f.hops = hops
	return true
}
