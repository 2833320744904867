package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/routing"
)

// Unusable is a reason why no other node's record makes a peer. It is the label of a metric, so that its
// texts must not change.
type Unusable string

// These are the reasons. With UnusableType the nodes publish another BackendType, with UnusableOutside their
// subnets are not in Network, and with UnusableLength their subnets are not of SubnetLen.
const (
	UnusableType    Unusable = "backend_type"
	UnusableOutside Unusable = "outside_network"
	UnusableLength  Unusable = "wrong_length"
	UnusableOther   Unusable = "other"
)

// AllUnusable lists the reasons.
func AllUnusable() []Unusable {
	return []Unusable{UnusableType, UnusableOutside, UnusableLength, UnusableOther}
}

// NoPeer says why no other node in the store can be a peer. It is zero if one is a peer, or if there are no
// other nodes.
func NoPeer(s *control.Snapshot) (note control.Verdict, kinds []Unusable) {
	set, b := &s.Set, &s.Backend
	if !b.InPlace || b.Path == routing.PathNone || b.Peers > 0 || len(set.Peers)+len(set.Rejected) == 0 {
		return note, nil
	}
	var why []string
	say := func(kind Unusable, format string, a ...any) {
		if why = append(why, fmt.Sprintf(format, a...)); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	types, reasons := map[string]int{}, map[string]int{}
	for _, r := range set.Peers {
		if t := typeName(r.BackendType); t != typeName(s.RecordType) {
			types[t]++
		}
	}
	for _, skipped := range b.Skipped {
		reasons[skipped.Reason]++
	}
	for _, t := range mostFirst(types) {
		say(UnusableType, "%s %s, this node runs %s",
			countOf(types[t], "peer publishes BackendType", "peers publish BackendType"), t, typeName(s.RecordType))
	}
	if len(types) == 0 {
		for _, why := range mostFirst(reasons) {
			say(UnusableOther, "%s not used: %s", countOf(reasons[why], "peer is", "peers are"), why)
		}
	}
	rejected, detail := map[lease.RejectReason]int{}, map[lease.RejectReason]string{}
	for _, r := range set.Rejected {
		rejected[r.Reason]++
		detail[r.Reason] = r.Key + ": " + r.Detail
	}
	for _, reason := range lease.RejectReasons() {
		n := rejected[reason]
		switch {
		case n == 0:
		case reason == lease.RejectOutside:
			say(UnusableOutside, "%s outside Network %s", countOf(n, "record lies", "records lie"),
				lease.Subnets{V4: set.Config.Network, V6: set.Config.IPv6Network})
		case reason == lease.RejectLength:
			say(UnusableLength, "%s another length than SubnetLen says",
				countOf(n, "record has a subnet of", "records have subnets of"))
		default:
			say(UnusableOther, "%s not believed (%s, as %s)", countOf(n, "record is", "records are"), reason,
				detail[reason])
		}
	}
	if len(why) == 0 {
		return note, nil // they come, or go, and the backend has not said of them yet
	}
	const most = 4
	if len(why) > most {
		why = append(why[:most], "and more")
	}
	return control.NoUsablePeer.Say(strings.Join(why, "; ")), kinds
}

// typeName returns a record's type in lower case.
func typeName(t string) string { return strings.ToLower(lease.BackendName(t)) }

// mostFirst returns the keys, the one with the highest count first.
func mostFirst(count map[string]int) []string {
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}
