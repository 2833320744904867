package belief

import (
	"slices"
	"time"

	"weft/lease"
)

// Outlook is a node's view of the cluster: its belief about the store, and the Set made of it. The zero value
// knows nothing. It has no clock and does no I/O. It is not safe for concurrent use.
type Outlook struct {
	mem    Memory
	bad    []lease.Rejected // of the last snapshot
	before []lease.Record   // the peers that were accepted last, or that the cache has
	handed bool             // a Set was handed out
	last   lease.Set        // the last one, with what has changed since that no backend needs to know
	given  lease.Set        // the last that was handed out, whose peers others keep too
	made   bool             // last is of what is known now, by rules
	rules  Rules
}

// NewOutlook returns the view of a node that has mem from its last run.
func NewOutlook(mem Memory) Outlook { return Outlook{mem: mem, before: mem.Records()} }

// Memory is what is believed of the store. It shares what nobody changes.
func (o *Outlook) Memory() Memory { return o.mem }

// Last is the last Set, the zero one before the first. Nobody changes it.
func (o *Outlook) Last() lease.Set { return o.last }

// Accepted are the peers of the last Set, or before the first those of the last run. Nobody changes them.
func (o *Outlook) Accepted() []lease.Record { return o.before }

// Expire removes the records that are missing in the store and have ended by now.
func (o *Outlook) Expire(now time.Time) {
	known := len(o.mem.Peers)
	o.mem = o.mem.Expire(now)
	o.made = o.made && len(o.mem.Peers) == known
}

// Handed reports whether there was a Set to be handed out.
func (o *Outlook) Handed() bool { return o.handed }

// Believe takes in a snapshot. config is the configuration in use, whatever the store has, and refused lists
// records that were left out of the snapshot. It returns a new alarm; "" for none.
func (o *Outlook) Believe(s lease.Snapshot, config []byte, now time.Time,
	refused ...lease.Rejected) (alarm string) {
	before := o.mem.Alarm()
	o.mem, o.bad = Believe(o.mem, s, now), slices.Concat(refused, s.Bad)
	o.mem.Config, o.made = config, false
	if before != "" {
		return ""
	}
	return o.mem.Alarm()
}

// Heard says that the store has come to a revision, which no snapshot has shown yet.
func (o *Outlook) Heard(revision int64) { o.mem.Revision = max(o.mem.Revision, revision) }

// Set computes the Set by the rules, with own as our record. news reports whether to publish it: it is the
// first one, or differs from the last for a backend. The peers of a Set that is not news may be those that
// were published; Current has their times. It costs almost nothing if nothing has changed.
func (o *Outlook) Set(rules Rules, own lease.Record) (set lease.Set, news bool) {
	if o.made && o.rules.equal(rules) && lease.SameRecord(own, o.given.Own) {
		o.last.Own = own
		return o.last, false
	}
	o.made, o.rules = true, rules
	records := make([]*lease.Record, len(o.mem.Peers))
	for i := range o.mem.Peers {
		records[i] = o.mem.Peers[i].Record
	}
	set = lease.Set{Config: rules.Config, Own: own, Alarm: o.mem.Alarm()}
	accepted, rejected := rules.Check(records, o.before)
	set.Peers, set.Rejected = Values(accepted), append(rejected, o.bad...)
	news = !o.handed || !set.Same(o.given)
	if news {
		o.handed, o.given, o.before = true, set, set.Peers
	}
	o.last = set
	o.last.Peers = o.given.Peers // as many, and the same but for clocks: one list is enough
	return set, news
}

// Values are what the pointers point to.
func Values(records []*lease.Record) []lease.Record {
	out := make([]lease.Record, len(records))
	for i, r := range records {
		out[i] = *r
	}
	return out
}

// Current returns peers, which are those of a Set, with the times of expiry and revisions that the store has
// told since: a renewal makes no new Set. A record of which the store has not told it ends by what is
// returned at the latest. The slice is new.
func (o *Outlook) Current(peers []lease.Record) []lease.Record {
	out := make([]lease.Record, 0, len(peers))
	for _, r := range peers {
		if i, found := o.mem.find(r.Subnets); found {
			now := o.mem.Peers[i]
			r.Expires, r.Revision, r.Reservation = now.Expires, now.Revision, now.Reservation
			if r.Expires.IsZero() && !r.Reservation && r.Kube == nil {
				r.Expires = now.Until
			}
		}
		out = append(out, r)
	}
	return out
}
