package routing

import (
	"encoding/json"
	"errors"
	"fmt"

	"weft/lease"
	"weft/routing/underlay"
	"weft/tunnel"
)

// Planner says what the data plane of a node carries, for one set after the other. It is what a backend of type udp decides, or of type vxlan in user space, without a
// kernel, a socket or a goroutine, for those who play whole clusters in one process. It is not safe for concurrent use.
type Planner struct {
	kind  backendType
	about trait
	at    situation
	table *tunnel.Table
}

// NewPlanner returns one for a network over an underlay. The error says that the network's type is another one, or what is wrong with its options or with
// the underlay's MTU. node is the identity of the node, of which the MACs of type vxlan are made.
func NewPlanner(c Network, u underlay.Link, node string) (*Planner, error) {
	p := new(Planner)
	switch s := c.settings.(type) {
	case *udp:
		p.kind = s
	case *vxlan:
		v := *s
		v.mac4, v.mac6 = vtepMAC(node, false, v.VNI, v.MacPrefix.bytes), vtepMAC(node, true, v.VNI, v.MacPrefix.bytes)
		p.kind = userVTEP{&v, ""}
	default:
		return nil, fmt.Errorf("type %s: only what types udp and vxlan carry can be planned without a kernel", c.BackendType)
	}
	p.about = p.kind.trait()
	m, err := p.kind.sizes(u)
	p.at = situation{under: u, mtu: m.inner, outer: m.outer}
	return p, err
}

// Publish is what the node's record says for the backend: its type, and the data of each family.
func (p *Planner) Publish() (name string, data, v6data json.RawMessage) {
	data, v6data = p.kind.publish()
	return p.about.record, data, v6data
}

// Engine is what the network's data plane is made of.
func (p *Planner) Engine() tunnel.Config {
	o := p.about.plane.options
	return tunnel.Config{Format: o.Format, Port: o.Port}
}

// Next returns the table for a set, which shares with the one before what is the same in both, and the peers that the type leaves out.
func (p *Planner) Next(set lease.Set) (*tunnel.Table, []Skipped, error) {
	p.at.set = set
	d := p.kind.want(p.at)
	p.at.tenure = d.tenure
	var err error
	if p.table == nil {
		p.table, err = tunnel.NewTable(p.about.plane.options.Format, *d.spec)
	} else {
		p.table, err = p.table.Next(*d.spec)
	}
	var bad *tunnel.PeerError
	if err != nil && !errors.As(err, &bad) {
		return nil, nil, err
	}
	return p.table, d.skipped(), nil
}
