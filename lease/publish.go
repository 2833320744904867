package lease

import (
	"slices"
	"time"
)

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
	} else {
		before, k.cached = k.cached, nil
	}
	records := make([]*Record, len(k.mem.Peers))
	for i := range k.mem.Peers {
		records[i] = &k.mem.Peers[i].Record
	}
	peers, rejected := rules.split(records, before)
	set.Peers, set.Rejected = peers, append(rejected, k.bad...)
	k.report(func(st *Status) {
		k.lives = k.mem
		st.Own, st.Alarm, st.Peers, st.Rejected = set.Own, set.Alarm, len(peers), set.Rejected
	})
	if k.published == nil || !set.Same(*k.published) {
		k.o.Publish(set)
		k.published = &set // else the one before stays, whose peers others keep too
	}
	if k.confirmed {
		k.save()
	}
	return set
}

// Same reports whether a backend would do the same with both sets: it does not
// look at times of expiry and at revisions, which every renewal changes.
func (s Set) Same(t Set) bool {
	sameRecord := func(a, b Record) bool {
		return a.Subnets == b.Subnets && a.Reservation == b.Reservation && sameKube(a.Kube, b.Kube) && a.Attrs.Equal(b.Attrs)
	}
	return s.Alarm == t.Alarm && sameRecord(s.Own, t.Own) && s.Config.Equal(t.Config) &&
		slices.EqualFunc(s.Peers, t.Peers, sameRecord) && slices.EqualFunc(s.Rejected, t.Rejected, sameRejected)
}

func sameKube(a, b *KubeNode) bool { return a == b || a != nil && b != nil && *a == *b }

func sameRejected(a, b Rejected) bool { return a.Key == b.Key && a.Reason == b.Reason }

// The cache is written no sooner after the last time than in saveWait for each record, and saveMost
// in all: writing is work for every record, and in a large network some record changes all the time.
const (
	saveWait = 500 * time.Microsecond
	saveMost = 10 * time.Second
)

// saves is when the cache was, and is to be, written.
type saves struct {
	last time.Time // when it was
	own  Subnets   // ours in it
	due  time.Time // when it is to be; zero for no need
	// failed is when it could not be written, and why the text of that; zero if it was since.
	failed time.Time
	why    string
}

// save writes the cache, or sets when that is due. What our own lease is, is written at once.
func (k *Keeper) save() {
	var own Subnets
	if k.held != nil {
		own = k.held.Subnets
	}
	if !k.saves.failed.IsZero() {
		k.saves.due = k.saves.failed.Add(saveMost)
		return
	}
	due := k.saves.last.Add(min(saveWait*time.Duration(len(k.mem.Peers)), saveMost))
	if time.Now().Before(due) && own == k.saves.own {
		k.saves.due = due
		return
	}
	k.saveNow()
}

// saveNow writes the cache, if it says anything else than before. A failure costs only the next start.
func (k *Keeper) saveNow() {
	k.saves.due = time.Time{}
	if k.o.Cache == nil || k.mem.ClusterID == "" || !k.proven.Load() {
		return
	}
	c := Cached{Memory: k.mem}
	if k.held != nil {
		c.Own = k.held.Record
	}
	written, err := k.o.Cache.save(c)
	k.report(func(st *Status) { st.CacheErr = err })
	if err != nil {
		if k.saves.why != err.Error() {
			k.log.Warn("the state was not cached; it is tried again", "cause", err)
		}
		k.saves.failed, k.saves.why = time.Now(), err.Error()
		k.saves.due = k.saves.failed.Add(saveMost)
		return
	}
	k.saves.failed, k.saves.why = time.Time{}, ""
	if written {
		k.saves.last, k.saves.own = time.Now(), c.Own.Subnets
	}
}

// saveDue writes the cache if its time has come, or if this is the last chance.
func (k *Keeper) saveDue(last bool) {
	if !k.saves.due.IsZero() && (last || !time.Now().Before(k.saves.due)) {
		k.saveNow()
	}
}
