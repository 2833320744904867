package kube

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The condition NetworkUnavailable, as flannel writes it; it never writes that it is true.
const (
	reasonUp    = "FlannelIsUp"
	messageUp   = "Flannel is running on this node"
	messageStop = "weft was stopped, and carries this node's packets itself: pods have no network until it " +
		"runs again"
	messageDown = "weft carries no packets on this node: "
	messageBut  = "weft carries packets on this node, but: "
)

// maxMessage bounds what a condition or an Event says, in bytes; the API server takes 32 KiB of the
// one and 1 KiB of the other.
const maxMessage = 1 << 10

func isNetworkCondition(c corev1.NodeCondition) bool { return c.Type == corev1.NodeNetworkUnavailable }

// condition is what our Node should say with these problems.
func condition(active []problem) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse,
		Reason: reasonUp, Message: messageUp}
	var texts []string
	for _, r := range active {
		if r.cuts && c.Status == corev1.ConditionFalse {
			c.Status, c.Reason = corev1.ConditionTrue, r.reason
		}
		texts = append(texts, r.text)
	}
	switch {
	case len(active) == 0:
		return c
	case c.Status == corev1.ConditionTrue:
		c.Message = clipMessage(strings.Join(texts, "; "))
	default:
		c.Reason, c.Message = active[0].reason, clipMessage(messageBut+strings.Join(texts, "; "))
	}
	return c
}

func clipMessage(s string) string {
	if len(s) > maxMessage {
		return strings.ToValidUTF8(s[:maxMessage], "")
	}
	return s
}

// networkCondition is what the Node says of its network; nil if it says nothing.
func networkCondition(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if isNetworkCondition(n.Status.Conditions[i]) {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// differs reports whether the Node says something else than c. Once we have written that all is
// well, another's reason for the same is left alone.
func differs(have *corev1.NodeCondition, c corev1.NodeCondition, written bool) bool {
	switch {
	case have == nil || have.Status != c.Status:
		return true
	case have.Reason == c.Reason && have.Message == c.Message:
		return false
	}
	return isOurReason(have.Reason) || !written || c.Reason != reasonUp
}
