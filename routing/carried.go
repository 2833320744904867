package routing

import (
	"encoding/json"

	"weft/encap"
)

// carried is a type of backend whose packets weft's own data plane moves: what it publishes, and
// what it makes of the peers' records. It is pure.
type carried interface {
	trait() trait
	format() encap.Format
	publish() (data, v6data json.RawMessage)
	// sizes are those of packets over the underlay as it is. Beside an error they are what is
	// possible, for the families that it suffices for.
	sizes(u Underlay) (mtus, error)
	// peers says what becomes of the set; outer is the largest datagram, and displaced are the
	// peers' addresses that the overlay cuts off.
	peers(s situation, outer int, displaced []Displaced) carriedPeers
	// note is what works less well than it could; "" if nothing does.
	note() string
}

// bareIP is the udp backend: inner packets bare in UDP, one route for all peers.
type bareIP struct {
	o    UDPOptions
	ipv6 bool // the network has it
}

func (bareIP) trait() trait                            { return trait{name: typeUDP, oneWay: true} } // flannel's writes no BackendType
func (bareIP) format() encap.Format                    { return encap.FormatIP }
func (bareIP) publish() (data, v6data json.RawMessage) { return nil, nil } // nor data
func (bareIP) note() string                            { return "" }

func (b bareIP) sizes(u Underlay) (mtus, error) {
	inner, err := overlayMTU(u.MTU, b.o, u.outer6(), b.ipv6)
	return mtus{outerMTU(u.MTU, b.o), inner}, err
}

// peers implements carried. A node is one peer, at one address for both of its subnets.
func (b bareIP) peers(s situation, outer int, displaced []Displaced) carriedPeers {
	c := carriedPeers{spec: localSpec(s.set, s.under, mtus{outer, s.mtu}, b.o)}
	c.room(len(s.set.Peers))
	for i := range s.set.Peers {
		r := &s.set.Peers[i]
		p, why := peerSpec(*r, s.under)
		if why != "" {
			c.skip(r, p, why)
			continue
		}
		c.add(r, p, len(c.reached))
	}
	c.settle(s.tenure, displaced)
	return c
}
