package kube

import (
	"errors"
	"fmt"

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
	case reasonUp, reasonDown, reasonStopped, reasonNoSubnet, reasonLost, reasonNode, reasonDuplicate,
		reasonFormer, reasonAlone, reasonDenied, reasonCredentials,
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

// problems lists what there is now, most fundamental first, at most one of each reason. s has no error of a
// write: refused is that, if the API server has answered with it.
func problems(s lease.Status, path DataPath, refused error) (all []problem) {
	add := func(reason, format string, a ...any) {
		all = append(all, problem{reason: reason, text: fmt.Sprintf(format, a...)})
	}
	cut := func(reason, format string, a ...any) {
		add(reason, format, a...)
		all[len(all)-1].cuts = true
	}
	twice := errors.As(s.Err, new(*duplicateError))
	none := s.Own.Subnets == (lease.Subnets{})
	switch {
	case s.State == lease.Lost && s.Err != nil:
		cut(reasonLost, "pods of this node have no network: %v; delete the Node object and let the node register "+
			"again, which gets it another podCIDR", s.Err)
	case none && twice:
		cut(reasonDuplicate, "pods of this node have no network: %v", s.Err)
	case none && s.Err != nil && !s.StoreSeen.IsZero():
		cut(reasonNoSubnet, "pods of this node have no network: %v", s.Err)
	}
	if !none && len(all) == 0 && path.Broken != "" { // without a subnet nothing can be in place
		cut(reasonDown, "%s%s", messageDown, path.Broken)
	}
	if s.State == lease.Expired && s.Err != nil && refused == nil {
		add(reasonNode, "%v", s.Err)
	}
	for _, r := range s.Rejected {
		if r.Reason == lease.RejectOverlapsOwn && !twice {
			add(reasonDuplicate, "node %q claims our podCIDR too, and other nodes believe whom they knew first: %s; "+
				"delete one of the two Node objects and let the node register again", r.Key, r.Detail)
			break
		}
	}
	if path.Former != "" {
		add(reasonFormer, "%s", path.Former)
	}
	if path.Alone != "" {
		add(reasonAlone, "%s", path.Alone)
	}
	switch why := s.StoreErr; {
	case why == nil:
	case apierrors.IsForbidden(why):
		add(reasonDenied, "%v", why)
	case apierrors.IsUnauthorized(why):
		add(reasonCredentials, "%v", why)
	default:
		add(reasonSilent, "%v", why)
	}
	if refused != nil { // this only Events can tell
		add(reasonReadOnly, "%v", refused)
	}
	if s.Alarm != "" {
		add(reasonAlarm, "%s", s.Alarm)
	}
	if s.CacheErr != nil {
		add(reasonCache, "the last known peers are not saved, and a start without the API server would not know "+
			"them: %v: see to the disk and to --cache-dir", s.CacheErr)
	}
	return all
}
