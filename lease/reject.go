package lease

// RejectReason is the code of why a record in the store is not used; "" if it is. It is the value of a
// metric's label and of the log's attribute reason.
type RejectReason string

// The reasons.
const (
	RejectKey            RejectReason = "bad_key"
	RejectValue          RejectReason = "bad_value"
	RejectFamily         RejectReason = "no_common_family"
	RejectOutside        RejectReason = "outside_network"
	RejectLength         RejectReason = "wrong_length"
	RejectOverlapsOwn    RejectReason = "overlaps_own"
	RejectOverlapsPeer   RejectReason = "overlaps_peer"
	RejectCoversUnderlay RejectReason = "covers_underlay"
	RejectCoversStore    RejectReason = "covers_store"
	RejectAddress        RejectReason = "bad_address"
	RejectOurAddress     RejectReason = "our_address"
)

// rejections has the reasons, in the order in which metrics and notes list them, each with its sentence.
var rejections = []struct {
	reason   RejectReason
	sentence string
}{
	{RejectKey, "The key is not one that a node of this network writes."},
	{RejectValue, "The value does not decode."},
	{RejectFamily, "The record has no subnet of a family that the network has on."},
	{RejectOutside, "The subnet is not inside `Network` or `IPv6Network`."},
	{RejectLength, "The subnet's length is not `SubnetLen` or `IPv6SubnetLen`."},
	{RejectOverlapsOwn, "The subnet overlaps this node's own."},
	{RejectOverlapsPeer, "The subnet overlaps that of a record that was accepted earlier."},
	{RejectCoversUnderlay, "The subnet contains an address of the underlay."},
	{RejectCoversStore, "The subnet contains an address of the store."},
	{RejectAddress, "The owner's address is missing, or no packet could be sent to it."},
	{RejectOurAddress, "The owner claims this node's identity or address."},
}

// RejectReasons returns every reason, for a metric that exports zeroes too.
func RejectReasons() []RejectReason {
	all := make([]RejectReason, len(rejections))
	for i, r := range rejections {
		all[i] = r.reason
	}
	return all
}

// Sentence explains the reason; it is "" for an unknown one.
func (r RejectReason) Sentence() string {
	for _, known := range rejections {
		if known.reason == r {
			return known.sentence
		}
	}
	return ""
}
