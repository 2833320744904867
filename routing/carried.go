package routing

import (
	"encoding/json"

	"weft/encap"
	"weft/tunnel"
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

// carriedPeers is what a set comes to.
type carriedPeers struct {
	spec    tunnel.Spec
	skipped []Skipped
	// reached and routes are for a type with several ways to a peer: the ways, and the plain routes
	// that some of them take.
	reached []Reached
	routes  []Route
}

// bareIP is the udp backend: inner packets bare in UDP, one route for all peers.
type bareIP struct {
	o    UDPOptions
	ipv6 bool // the network has it
}

func (bareIP) trait() trait                            { return trait{name: typeUDP} } // flannel's writes no BackendType
func (bareIP) format() encap.Format                    { return encap.FormatIP }
func (bareIP) publish() (data, v6data json.RawMessage) { return nil, nil } // nor data
func (bareIP) note() string                            { return "" }

func (b bareIP) sizes(u Underlay) (mtus, error) {
	inner, err := overlayMTU(u.MTU, b.o, u.outer6(), b.ipv6)
	return mtus{outerMTU(u.MTU, b.o), inner}, err
}

func (b bareIP) peers(s situation, outer int, displaced []Displaced) carriedPeers {
	spec, skipped := buildSpec(s.set, s.under, mtus{outer, s.mtu}, b.o, displaced)
	return carriedPeers{spec: spec, skipped: skipped}
}
