package lease

// RejectReason says why a record in the store is not used. Its String is the
// value of a metric's label, so the texts do not change.
type RejectReason uint8

// The reasons. The zero value is a bug.
const (
	_ RejectReason = iota
	// RejectKey: the key is not one that a node of this network writes.
	RejectKey
	// RejectValue: the value does not decode.
	RejectValue
	// RejectFamily: the record has no subnet of a family that the network has on.
	RejectFamily
	// RejectOutside: the subnet is not inside Network or IPv6Network.
	RejectOutside
	// RejectLength: the subnet's length is not SubnetLen or IPv6SubnetLen.
	RejectLength
	// RejectOverlapsOwn: the subnet overlaps ours.
	RejectOverlapsOwn
	// RejectOverlapsPeer: the subnet overlaps that of a record accepted earlier.
	RejectOverlapsPeer
	// RejectCoversUnderlay: the subnet contains an address of the underlay.
	RejectCoversUnderlay
	// RejectCoversStore: the subnet contains an address of the store.
	RejectCoversStore
	// RejectAddress: the owner's address is missing, or no packet could be sent to it.
	RejectAddress
	// RejectOurAddress: the owner claims our identity or our address.
	RejectOurAddress

	rejectEnd // one past the last reason
)

// RejectReasons returns every reason, for a metric that exports zeroes too.
func RejectReasons() []RejectReason {
	all := make([]RejectReason, 0, rejectEnd-1)
	for r := RejectKey; r < rejectEnd; r++ {
		all = append(all, r)
	}
	return all
}

func (r RejectReason) String() string {
	switch r {
	case RejectKey:
		return "bad_key"
	case RejectValue:
		return "bad_value"
	case RejectFamily:
		return "no_common_family"
	case RejectOutside:
		return "outside_network"
	case RejectLength:
		return "wrong_length"
	case RejectOverlapsOwn:
		return "overlaps_own"
	case RejectOverlapsPeer:
		return "overlaps_peer"
	case RejectCoversUnderlay:
		return "covers_underlay"
	case RejectCoversStore:
		return "covers_store"
	case RejectAddress:
		return "bad_address"
	case RejectOurAddress:
		return "our_address"
	case rejectEnd:
	}
	return "invalid"
}

// MarshalText writes the reason as its String.
func (r RejectReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads what MarshalText wrote; an unknown text gives the invalid zero value.
func (r *RejectReason) UnmarshalText(b []byte) error {
	*r = 0
	for _, known := range RejectReasons() {
		if known.String() == string(b) {
			*r = known
		}
	}
	return nil
}
