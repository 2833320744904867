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

// openCarried makes the backend of a type whose packets the data plane moves, as o has it.
func openCarried(c BackendConfig, o UDPOptions, t carried) (Backend, error) {
	u, err := NewUDP(UDPConfig{
		Kernel: c.Kernel, Network: c.Network, Options: o, Workers: c.Workers, Former: c.Former,
		Underlay: c.Underlay, UnderlayOptions: c.UnderlayOptions, UnderlayChanged: c.UnderlayChanged,
		Logger: c.Logger, carried: t,
	})
	if err != nil {
		return nil, err // and no *UDP in the interface
	}
	return u, nil
}
