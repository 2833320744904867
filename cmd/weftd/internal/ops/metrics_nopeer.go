package ops

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// NoPeer is a reason why none of the other nodes' records is of use. It is a metric's label, so the
// texts do not change.
type NoPeer string

// The reasons. NoPeerType: they publish another BackendType. NoPeerOutside: their subnets are not in
// Network. NoPeerLength: they are not of SubnetLen.
const (
	NoPeerType    NoPeer = "backend_type"
	NoPeerOutside NoPeer = "outside_network"
	NoPeerLength  NoPeer = "wrong_length"
	NoPeerOther   NoPeer = "other"
)

func noPeerFamily() metric {
	return metric{"weft_no_usable_peer", "1 for each reason why none of the other nodes in the store can be used, while that is so.", prometheus.GaugeValue, []string{"reason"},
		func(s *Snapshot, emit func(float64, ...string)) {
			for _, reason := range []NoPeer{NoPeerType, NoPeerOutside, NoPeerLength, NoPeerOther} {
				emit(truth(slices.Contains(s.NoPeer, reason)), string(reason))
			}
		}}
}
