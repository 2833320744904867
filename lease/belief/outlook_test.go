package belief

import (
	"net/netip"
	"testing"
	"time"

	"weft/lease"
)

// TestOutlookUnchanged wants no work of a Set as long as nothing has changed, and a new one as soon as
// something has.
func TestOutlookUnchanged(t *testing.T) {
	config, err := lease.ParseNetworkConfig([]byte(`{"Network":"10.244.0.0/16"}`))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	record := func(key, node, addr string) *lease.Record {
		s, err := lease.ParseKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return &lease.Record{Subnets: s, Attrs: lease.Attrs{PublicIP: netip.MustParseAddr(addr),
			Weft: &lease.Weft{Node: node}},
			Revision: 2, Expires: now.Add(lease.TTL)}
	}
	own, b, c := record("10.244.1.0-24", "a", "192.0.2.1"), record("10.244.2.0-24", "b", "192.0.2.2"),
		record("10.244.3.0-24", "c", "192.0.2.3")
	rules := Rules{Config: config, Self: lease.Self{Node: "a", PublicIP: own.PublicIP}, Own: own.Subnets,
		Underlay: []netip.Addr{own.PublicIP}}
	var o Outlook
	read := func(revision int64, records ...*lease.Record) {
		o.Believe(lease.Snapshot{ClusterID: "c", Revision: revision, Config: []byte("{}"), Records: records},
			[]byte("{}"), now)
	}
	wants := func(what string, news bool, peers int) {
		t.Helper()
		set, got := o.Set(rules, *own)
		if got != news || len(set.Peers) != peers {
			t.Errorf("%s: news %t with %d peers, want %t with %d", what, got, len(set.Peers), news, peers)
		}
	}
	read(2, own, b, c)
	wants("at first", true, 2)
	wants("nothing has changed", false, 2)
	if n := testing.AllocsPerRun(10, func() { o.Expire(now); o.Set(rules, *own) }); n > 0 {
		t.Errorf("%v allocations of a set that has not changed", n)
	}
	later := *b
	later.Revision, later.Expires = 4, now.Add(3*lease.TTL)
	read(2, own, &later, c)
	wants("a peer has renewed", false, 2)
	if &o.Last().Peers[0] != &o.given.Peers[0] {
		t.Error("a renewal makes another list of all peers beside the one that is in use")
	}
	renewed := *own
	renewed.Revision, renewed.Expires = 3, now.Add(2*lease.TTL)
	if set, news := o.Set(rules, renewed); news || set.Own.Revision != 3 || o.Last().Own.Revision != 3 {
		t.Errorf("our own renewal: news %t, our revision %d", news, set.Own.Revision)
	}
	read(3, own, b)
	wants("one is removed a moment ago", false, 2)
	o.Expire(now.Add(2 * removalGrace))
	wants("one has left", true, 1)
	rules.Store = []netip.Addr{netip.MustParseAddr("10.244.2.7")}
	wants("another rule", true, 0)
	own.PublicIP = netip.MustParseAddr("192.0.2.9")
	wants("we are elsewhere", true, 0)
}
