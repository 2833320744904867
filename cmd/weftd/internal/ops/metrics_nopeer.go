package ops

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// NoPeer is a reason why no other node's record makes a peer. It is the label of a metric, so that its texts
// must not change.
type NoPeer string

// These are the reasons: with NoPeerType the nodes publish another BackendType, with NoPeerOutside their
// subnets are not in Network, and with NoPeerLength their subnets are not of SubnetLen.
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
