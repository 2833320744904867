package ops

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"weft/tunnel"
)

// PeerInfo is what a peer's record says of it.
type PeerInfo struct {
	// Name is what people call it, its identity, or its subnet; ID is its identity, "" if it published none.
	Name, ID             string
	PublicIP, PublicIPv6 netip.Addr
	// Subnets are as people write them, and Backend is the type.
	Subnets, Backend string
}

// namedPeer is a peer under a name that no other has.
type namedPeer struct {
	*tunnel.PeerStats
	name string
}

// namedInfo is a PeerInfo under a name that no other has.
type namedInfo struct {
	*PeerInfo
	name string
}

// place is where a peer is known from, in the data plane and in the records.
type place struct {
	name string
	addr netip.Addr
}

// peerInfos returns Infos, each with a name that no other has: nodes of one name are told apart by their identities,
// and what cannot be told apart by these, as a copied node, by the address.
func (s *Snapshot) peerInfos() []namedInfo {
	if s.infos != nil || len(s.Infos) == 0 {
		return s.infos
	}
	times := make(map[string]int, len(s.Infos))
	for i := range s.Infos {
		times[s.Infos[i].Name]++
	}
	seen := make(map[string]bool, len(s.Infos))
	s.infos = make([]namedInfo, 0, len(s.Infos))
	for i := range s.Infos {
		p := &s.Infos[i]
		name := p.Name
		if times[name] > 1 && p.ID != "" && p.ID != name {
			name += " " + p.ID
		}
		if seen[name] {
			name += " " + p.address().String()
		}
		if !seen[name] {
			seen[name] = true
			s.infos = append(s.infos, namedInfo{p, name})
		}
	}
	return s.infos
}

// address is the one that people are shown.
func (p *PeerInfo) address() netip.Addr {
	if p.PublicIP.IsValid() {
		return p.PublicIP
	}
	return p.PublicIPv6
}

// knownPlaces finds the names of peerInfos.
func (s *Snapshot) knownPlaces() map[place]string {
	known := make(map[place]string, len(s.Infos))
	for _, p := range s.peerInfos() {
		for _, a := range [...]netip.Addr{p.PublicIP, p.PublicIPv6} {
			if a.IsValid() {
				known[place{p.Name, a}] = p.name
			}
		}
	}
	return known
}

// namedPeers returns Peers, each with a name that no other has, and with the one of its record: two records with
// one name must not make the whole request fail. The names are made once for a page. One goroutine at a time may
// call it.
func (s *Snapshot) namedPeers() []namedPeer {
	if s.named != nil {
		return s.named
	}
	known := s.knownPlaces()
	s.named = make([]namedPeer, 0, len(s.Peers))
	seen := make(map[string]bool, len(s.Peers))
	for i := range s.Peers {
		p := &s.Peers[i]
		name := p.Name
		if n, ok := known[place{name, p.Addr}]; ok {
			name = n
		}
		if seen[name] {
			name += " " + p.Addr.String()
		}
		if !seen[name] {
			seen[name] = true
			s.named = append(s.named, namedPeer{p, name})
		}
	}
	return s.named
}

func peerInfoFamily() metric {
	return metric{"weft_peer_info", "Always 1; the labels say who the peer is, as in its lease record.", prometheus.GaugeValue,
		[]string{"peer", "id", "address", "subnets", "backend"},
		func(s *Snapshot, emit func(float64, ...string)) {
			for _, p := range s.peerInfos() {
				address := ""
				if a := p.address(); a.IsValid() {
					address = a.String()
				}
				emit(1, p.name, p.ID, address, p.Subnets, p.Backend)
			}
		}}
}
