package kube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"weft/lease"
)

// The reasons of our condition and of our Events, besides flannel's own for that all is well.
const (
	reasonDown        = "FlannelIsDown"         // packets cannot go
	reasonStopped     = "FlannelIsStopped"      // and with it the only one who carries packets
	reasonNoSubnet    = "NoPodCIDR"             // there is nothing to give to pods yet
	reasonLost        = "PodCIDRLost"           // another Node has what was ours
	reasonNode        = "NodeObjectFault"       // our Node does not say any more what we serve
	reasonDuplicate   = "DuplicatePodCIDR"      // another Node has ours too
	reasonFormer      = "FormerPodCIDR"         // pods have addresses of a subnet that is not ours any more
	reasonAlone       = "NoPeerAnswers"         // packets leave, and nobody answers
	reasonDenied      = "APIAccessDenied"       // a right is missing
	reasonCredentials = "APICredentialsRefused" // the token or the certificate is not taken
	reasonSilent      = "APIServerSilent"       // there is no answer
	reasonReadOnly    = "NodeNotWritable"       // we may not write to our Node
	reasonAlarm       = "RemovalsNotBelieved"   // the cluster may be another
	reasonCache       = "StateNotSaved"         // a start without the API server would know too little
)

// isOurReason reports whether we write that reason.
func isOurReason(reason string) bool {
	switch reason {
	case reasonUp, reasonDown, reasonStopped, reasonNoSubnet, reasonLost, reasonNode, reasonDuplicate, reasonFormer, reasonAlone, reasonDenied, reasonCredentials,
		reasonSilent, reasonReadOnly, reasonAlarm, reasonCache:
		return true
	}
	return false
}

// problem is one thing about this node that somebody should know, and do something about.
type problem struct {
	reason string
	text   string // what it is, and the remedy
	cuts   bool   // pods have no network by it
}

// problems lists what there is now, most fundamental first, at most one of each reason.
func (c *core) problems() (all []problem) {
	add := func(reason, format string, a ...any) {
		all = append(all, problem{reason: reason, text: fmt.Sprintf(format, a...)})
	}
	cut := func(reason, format string, a ...any) {
		add(reason, format, a...)
		all[len(all)-1].cuts = true
	}
	st, w := &c.standing, &c.writer
	twice := errors.As(st.cause, new(*duplicateError))
	none := st.own == (lease.Subnets{})
	switch {
	case st.state == lease.Lost && st.cause != nil:
		cut(reasonLost, "pods of this node have no network: %v; delete the Node object and let the node register again, which gets it another podCIDR", st.cause)
	case none && twice:
		cut(reasonDuplicate, "pods of this node have no network: %v", st.cause)
	case none && st.cause != nil && !c.server.heard.IsZero():
		cut(reasonNoSubnet, "pods of this node have no network: %v", st.cause)
	}
	if !none && len(all) == 0 && c.path != nil && c.path.Broken != "" { // without a subnet nothing can be in place
		cut(reasonDown, "%s%s", messageDown, c.path.Broken)
	}
	if st.state == lease.Expired && st.cause != nil && w.err == nil {
		add(reasonNode, "%v", st.cause)
	}
	for _, r := range c.Peers.Last().Rejected {
		if r.Reason == lease.RejectOverlapsOwn && !twice {
			add(reasonDuplicate, "node %q claims our podCIDR too, and other nodes believe whom they knew first: %s; delete one of the two Node objects and let the node register again", r.Key, r.Detail)
			break
		}
	}
	if c.path != nil && c.path.Former != "" {
		add(reasonFormer, "%s", c.path.Former)
	}
	if c.path != nil && c.path.Alone != "" {
		add(reasonAlone, "%s", c.path.Alone)
	}
	switch why := c.server.err(); {
	case why == nil:
	case apierrors.IsForbidden(why):
		add(reasonDenied, "%v", why)
	case apierrors.IsUnauthorized(why):
		add(reasonCredentials, "%v", why)
	default:
		add(reasonSilent, "%v", why)
	}
	if w.err != nil && w.refused { // this only Events can tell
		add(reasonReadOnly, "%v", w.err)
	}
	if alarm := c.Peers.Last().Alarm; alarm != "" {
		add(reasonAlarm, "%s", alarm)
	}
	if err := c.SaveErr(); err != nil {
		add(reasonCache, "the last known peers are not saved, and a start without the API server would not know them: %v: see to the disk and to --cache-dir", err)
	}
	return all
}

// problemLog remembers since when there is which problem. The zero value is empty.
type problemLog struct {
	since  map[string]time.Time // by reason
	active map[string]string    // what has lasted long enough to be told, with its text
}

// told is one thing to tell: that a problem began, or that it is over.
type told struct {
	problem
	over  bool
	after time.Duration // how long it lasted
}

// update takes in what there is at now. It returns what is active, which is what has lasted for patience, or for
// brief if it cuts nobody off; what of that is news; and next, when there will be more by itself, which is zero for
// never. doubt says that something cuts pods off and is not active yet.
func (d *problemLog) update(all []problem, now time.Time, patience, brief time.Duration) (active []problem, news []told, doubt bool, next time.Time) {
	if d.since == nil {
		d.since, d.active = map[string]time.Time{}, map[string]string{}
	}
	there := map[string]bool{}
	for _, c := range all {
		there[c.reason] = true
		since, known := d.since[c.reason]
		if !known {
			since, d.since[c.reason] = now, now
		}
		at := since.Add(brief)
		if c.cuts {
			at = since.Add(patience)
		}
		if now.Before(at) {
			doubt = doubt || c.cuts
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		if _, said := d.active[c.reason]; !said {
			news = append(news, told{problem: c})
		}
		d.active[c.reason] = c.text
		active = append(active, c)
	}
	for _, reason := range slices.Sorted(maps.Keys(d.since)) {
		since := d.since[reason]
		if there[reason] {
			continue
		}
		if text, said := d.active[reason]; said {
			news = append(news, told{problem: problem{reason: reason, text: text}, over: true, after: now.Sub(since)})
		}
		delete(d.since, reason)
		delete(d.active, reason)
	}
	return active, news, doubt, next
}
