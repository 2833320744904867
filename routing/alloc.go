package routing

import "weft/lease"

// typeAlloc is flannel's alloc: a subnet for the node, and nothing else.
const typeAlloc = "alloc"

func allocType() Type {
	return Type{Name: typeAlloc, Settings: func(lease.NetworkConfig, func(string) bool) settings {
		return new(alloc)
	}}
}

// alloc lets the node's subnet be leased and written to the subnet file, and does nothing else.
type alloc struct{ plain }

func (alloc) Facts() Facts { return Facts{Carrier: CarrierOthers, Alone: true, path: PathNone} }

func (alloc) want(situation) desired { return desired{} }
