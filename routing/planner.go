package routing

import (
	"encoding/json"
	"errors"
	"fmt"

	"weft/lease"
	"weft/routing/underlay"
	"weft/tunnel"
)

// Planner says what the data plane of a node carries, for one set after the other, without a kernel, a socket
// or a goroutine, for those who play whole clusters in one process. It is not safe for concurrent use.
type Planner struct {
	settings
	at    situation
	table *tunnel.Table
}

// NewPlanner returns one for a network over an underlay, of the node with that identity. The error says that
// the type does without the data plane, or what is wrong with the underlay's MTU.
func NewPlanner(c Network, u underlay.Link, node string) (*Planner, error) {
	p := &Planner{settings: c.settings}
	if s, ok := c.settings.(userSpacer); ok {
		p.settings = s.inUserSpace(node, "")
	}
	if p.Facts().plane == nil {
		return nil, fmt.Errorf("type %s: the data plane carries nothing of it", c.BackendType)
	}
	m, err := p.sizes(u)
	p.at = situation{under: u, mtu: m.inner, outer: m.outer}
	return p, err
}

// Publish is what the node's record says for the backend: its type, and the data of each family.
func (p *Planner) Publish() (name string, data, v6data json.RawMessage) {
	data, v6data = p.publish()
	return p.Facts().record, data, v6data
}

// Engine is what the network's data plane is made of.
func (p *Planner) Engine() tunnel.Config {
	o := p.Facts().plane
	return tunnel.Config{Format: o.Format, Port: o.Port}
}

// Next returns the table for a set, which shares with the one before what is the same in both, and the peers
// that the type leaves out.
func (p *Planner) Next(set lease.Set) (*tunnel.Table, []Skipped, error) {
	p.at.set = set
	d := p.want(p.at)
	p.at.claims = d.claims
	var err error
	if p.table == nil {
		p.table, err = tunnel.NewTable(p.Facts().plane.Format, *d.spec)
	} else {
		p.table, err = p.table.Next(*d.spec)
	}
	var bad *tunnel.PeerError
	if err != nil && !errors.As(err, &bad) {
		return nil, nil, err
	}
	return p.table, d.skipped(), nil
}
