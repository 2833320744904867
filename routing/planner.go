package routing

import (
	"errors"
	"fmt"

	"weft/lease"
	"weft/routing/underlay"
	"weft/tunnel"
)

// Planner says what the data plane of a node carries, for one set after the other. It is what a backend of type udp decides, without a
// kernel, a socket or a goroutine, for those who play whole clusters in one process. It is not safe for concurrent use.
type Planner struct {
	kind  carried
	at    situation
	table *tunnel.Table
}

// NewPlanner returns one for a network over an underlay. The error says that the network's type is another one, or what is wrong with its options or with
// the underlay's MTU.
func NewPlanner(c lease.NetworkConfig, u underlay.Link) (*Planner, error) {
	s, err := BuiltIn().Settings(c)
	if err != nil {
		return nil, err
	}
	udp, ok := s.(*udpSettings)
	if !ok {
		return nil, fmt.Errorf("type %s: only what type udp carries can be planned without a kernel", c.BackendType)
	}
	p := &Planner{kind: bareIP{udp.UDPOptions, udp.ipv6}}
	m, err := p.kind.sizes(u)
	p.at = situation{under: u, mtu: m.inner, outer: m.outer}
	return p, err
}

// Engine is what the network's data plane is made of.
func (p *Planner) Engine() tunnel.Config {
	o := p.kind.plane()
	return tunnel.Config{Format: o.Format, Port: o.Port}
}

// Next returns the table for a set, which shares with the one before what is the same in both, and the peers that the type leaves out.
func (p *Planner) Next(set lease.Set) (*tunnel.Table, []Skipped, error) {
	p.at.set = set
	d := p.kind.want(p.at)
	p.at.tenure = d.tenure
	var err error
	if p.table == nil {
		p.table, err = tunnel.NewTable(p.kind.plane().Format, *d.spec)
	} else {
		p.table, err = p.table.Next(*d.spec)
	}
	var bad *tunnel.PeerError
	if err != nil && !errors.As(err, &bad) {
		return nil, nil, err
	}
	return p.table, d.skipped(), nil
}
