package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weft/cmd/weftd/internal/ops"
	"weft/lease"
	"weft/routing"
)

// noPeer says, as a sentence and as labels of a metric, why no other node in the store can be a peer. It
// says nothing if one is a peer, or if there are no other nodes. recordType is what this node publishes.
func noPeer(set lease.Set, b routing.Status, recordType string) (note string, kinds []ops.NoPeer) {
	if !b.InPlace || b.Path == routing.PathNone || b.Peers > 0 || len(set.Peers)+len(set.Rejected) == 0 {
		return "", nil
	}
	var why []string
	say := func(kind ops.NoPeer, format string, a ...any) {
		if why = append(why, fmt.Sprintf(format, a...)); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	types, reasons := map[string]int{}, map[string]int{}
	for _, r := range set.Peers {
		if t := typeName(r.BackendType); t != typeName(recordType) {
			types[t]++
		}
	}
	for _, s := range b.Skipped {
		reasons[s.Reason]++
	}
	for _, t := range mostFirst(types) {
		say(ops.NoPeerType, "%s %s, this node runs %s", countOf(types[t], "peer publishes BackendType", "peers publish BackendType"), t, typeName(recordType))
	}
	if len(types) == 0 {
		for _, s := range mostFirst(reasons) {
			say(ops.NoPeerOther, "%s not used: %s", countOf(reasons[s], "peer is", "peers are"), s)
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
			say(ops.NoPeerOutside, "%s outside Network %s", countOf(n, "record lies", "records lie"), lease.Subnets{V4: set.Config.Network, V6: set.Config.IPv6Network})
		case reason == lease.RejectLength:
			say(ops.NoPeerLength, "%s another length than SubnetLen says", countOf(n, "record has a subnet of", "records have subnets of"))
		default:
			say(ops.NoPeerOther, "%s not believed (%s, as %s)", countOf(n, "record is", "records are"), reason, detail[reason])
		}
	}
	if len(why) == 0 {
		return "", nil // they come, or go, and the backend has not said of them yet
	}
	const most = 4
	if len(why) > most {
		why = append(why[:most], "and more")
	}
	return "no peer is usable: " + strings.Join(why, "; "), kinds
}

// typeName returns a record's type in lower case.
func typeName(t string) string { return strings.ToLower(lease.BackendName(t)) }

// mostFirst returns the keys, the one with the highest count first.
func mostFirst(count map[string]int) []string {
	return slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
}

func countOf(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// noPeerNow calls noPeer for the present generation.
func (d *Daemon) noPeerNow() (note string, kinds []ops.NoPeer) {
	g, _ := d.current()
	if g == nil {
		return "", nil
	}
	set, _ := g.state()
	set.Rejected = g.member.Status().Rejected
	return noPeer(set, g.backend.Status(), g.backend.RecordType())
}

// Notes returns what the operator should know although the node is ready.
func (d *Daemon) Notes() []string {
	out := d.lacking()
	if note := d.custodyNote(); note != "" {
		out = append(out, note)
	}
	out = append(out, d.certificatesNow()...)
	g, state := d.readiness()
	if g == nil {
		return out
	}
	out = append(out, state.Notes(time.Now())...)
	if err := state.Lease.CacheErr; err != nil {
		out = append(out, fmt.Sprintf("the last state is not saved, and a start without the %s would not know it: %v: see to the disk and to --cache-dir", d.source.name(), err))
	}
	if v := g.configNow().view; v.LastGood && v.Fault != nil {
		out = append(out, "network config: the last good one is in use, since that of "+d.source.where()+" cannot be: "+v.Fault.Error())
	}
	if why, _ := d.noPeerNow(); why != "" {
		out = append(out, why)
	}
	if why := g.formerGateways(); why != "" {
		out = append(out, why)
	}
	if why := d.rangeNow(); why != "" {
		out = append(out, why)
	}
	return append(out, g.probeNotes()...)
}
