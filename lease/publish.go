package lease

import "slices"

// publish computes the Set, hands it out if it is not the last one, and saves it.
func (k *Keeper) publish() Set {
	local := k.currentLocal()
	set := Set{Config: k.o.Config, Alarm: k.mem.Alarm()}
	rules := Rules{Config: k.o.Config, Self: k.self(), Underlay: local.Underlay, Store: local.Store}
	if k.held != nil {
		set.Own, rules.Own = k.held.Record, k.held.Subnets
	}
	var before []Record
	if k.published != nil {
		before = k.published.Peers
	} else if k.o.Cached != nil {
		before = k.o.Cached.Memory.Records()
	}
	peers, rejected := rules.Check(k.mem.Records(), before)
	set.Peers, set.Rejected = peers, append(rejected, k.bad...)
	k.report(func(st *Status) {
		st.Own, st.Alarm, st.Peers, st.Rejected = set.Own, set.Alarm, len(peers), set.Rejected
	})
	if k.published == nil || !set.same(*k.published) {
		k.o.Publish(set)
	}
	k.published = &set
	if k.confirmed {
		k.save()
	}
	return set
}

// same reports whether a backend would do the same with both sets: it does not
// look at times of expiry and at revisions, which every renewal changes.
func (s Set) same(t Set) bool {
	sameRecord := func(a, b Record) bool {
		return a.Subnets == b.Subnets && a.Reservation == b.Reservation && a.Attrs.Equal(b.Attrs)
	}
	return s.Alarm == t.Alarm && sameRecord(s.Own, t.Own) && s.Config.Equal(t.Config) &&
		slices.EqualFunc(s.Peers, t.Peers, sameRecord) && slices.EqualFunc(s.Rejected, t.Rejected, sameRejected)
}

func sameRejected(a, b Rejected) bool { return a.Key == b.Key && a.Reason == b.Reason }

// save writes the cache. A failure costs only the next start.
func (k *Keeper) save() {
	if k.o.Cache == nil || k.mem.ClusterID == "" {
		return
	}
	c := Cached{Memory: k.mem}
	if k.held != nil {
		c.Own = k.held.Record
	}
	if err := k.o.Cache.Save(c); err != nil {
		k.log.Warn("the state was not cached", "cause", err)
	}
}
