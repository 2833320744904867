package control

import (
	"net/netip"

	"weft/lease"
)

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
