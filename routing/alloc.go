package routing

import (
	"context"
	"encoding/json"

	"weft/lease"
	"weft/routing/underlay"
)

// typeAlloc is flannel's alloc: a subnet for the node, and nothing else.
const typeAlloc = "alloc"

func allocType() Type {
	return Type{Name: typeAlloc, Settings: func(c lease.NetworkConfig) Settings { return &allocSettings{ipv6: c.EnableIPv6} }}
}

// allocSettings are the options of a network.
type allocSettings struct {
	plainOptions
	ipv6 bool // the network has it
}

// Keys implements Settings.
func (s *allocSettings) Keys() []Key { return plainKeys(&s.plainOptions, s.ipv6) }

// Facts implements Settings.
func (*allocSettings) Facts() Facts { return Facts{Carrier: CarrierOthers, Alone: true} }

// MTU implements Settings.
func (s *allocSettings) MTU(u underlay.Link) (int, error) { return innerMTU(alloc{s.plainOptions}, u) }

// Open implements Settings.
func (s *allocSettings) Open(_ context.Context, c BackendConfig) (Backend, error) {
	return openKernel(c, alloc{s.plainOptions}, nil)
}

// alloc has the node's subnet reserved and written down, and leaves all else to others.
type alloc struct{ o plainOptions }

func (alloc) trait() trait { return trait{name: typeAlloc, path: PathNone} }

func (alloc) publish() (data, v6data json.RawMessage) { return nil, nil }

func (a alloc) sizes(u underlay.Link) (mtus, error) { return plainSizes(u.MTU, a.o.MTU, false) }

func (alloc) want(situation) desired { return desired{} }
