package kube

import (
	"time"

	"weft/lease/kube/internal/objects"
)

// The condition NetworkUnavailable, as flannel writes it; it never writes that it is true.
const (
	networkUnavailable            = "NetworkUnavailable"
	conditionTrue, conditionFalse = "True", "False"

	reasonUp    = "FlannelIsUp"
	messageUp   = "Flannel is running on this node"
	reasonDown  = "FlannelIsDown"
	messageDown = "weft carries no packets on this node: "
)

// maxMessage bounds what a condition says, in bytes; the API server takes 32 KiB.
const maxMessage = 1 << 10

// brokenFor is how long the data path is broken before the condition says so: the scheduler
// then keeps new pods away, which a restart or a device that is made anew is not worth.
const brokenFor = time.Minute

func isNetworkCondition(c objects.NodeCondition) bool { return c.Type == networkUnavailable }

// dataPath is what the daemon says of itself.
type dataPath struct {
	known  bool      // the daemon has said anything
	broken string    // "" if packets flow
	since  time.Time // when it broke
}

// set takes in what the daemon says now.
func (d dataPath) set(broken string, now time.Time) dataPath {
	switch {
	case broken == "":
		return dataPath{known: true}
	case d.broken == "":
		d.since = now
	}
	d.known, d.broken = true, broken
	return d
}

// condition is what our Node should say at now, and nil for whatever it says. next is when that
// changes by itself; zero for never.
func (d dataPath) condition(now time.Time, patience time.Duration) (c *objects.NodeCondition, next time.Time) {
	switch at := d.since.Add(patience); {
	case !d.known:
		return nil, time.Time{}
	case d.broken == "":
		return &objects.NodeCondition{Type: networkUnavailable, Status: conditionFalse, Reason: reasonUp, Message: messageUp}, time.Time{}
	case now.Before(at):
		return nil, at
	}
	message := messageDown + d.broken
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return &objects.NodeCondition{Type: networkUnavailable, Status: conditionTrue, Reason: reasonDown, Message: message}, time.Time{}
}

// status is what the Node says of its network; "" if it says nothing.
func status(n *objects.Node) string {
	for _, c := range n.Status.Conditions {
		if isNetworkCondition(c) {
			return c.Status
		}
	}
	return ""
}

// differs reports whether the Node says something else than c. Once we have written that the
// network is available, another's reason for the same is left alone.
func differs(n *objects.Node, c *objects.NodeCondition, written bool) bool {
	for _, have := range n.Status.Conditions {
		if !isNetworkCondition(have) {
			continue
		}
		if have.Status != c.Status {
			return true
		}
		ours := have.Reason == reasonUp || have.Reason == reasonDown
		same := have.Reason == c.Reason && have.Message == c.Message
		return !same && (ours || !written || c.Status == conditionTrue)
	}
	return true
}
