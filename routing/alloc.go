package routing

import (
	"encoding/json"

	"weft/routing/underlay"
)

// typeAlloc is flannel's alloc: a subnet for the node, and nothing else.
const typeAlloc = "alloc"

func allocType() Type {
	return plainType(typeAlloc, Facts{Carrier: CarrierOthers, Alone: true}, func(o plainOptions) backendType { return alloc{o} })
}

// alloc lets the node's subnet be leased and written to the subnet file, and does nothing else.
type alloc struct{ o plainOptions }

func (alloc) trait() trait { return trait{name: typeAlloc, path: PathNone} }

func (alloc) publish() (data, v6data json.RawMessage) { return nil, nil }

func (a alloc) sizes(u underlay.Link) (mtus, error) { return plainSizes(u.MTU, a.o.MTU, false) }

func (alloc) want(situation) desired { return desired{} }
