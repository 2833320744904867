package kube

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// patch is a strategic merge patch of a Node's status. A null annotation is removed, and a
// condition replaces that of its type.
type patch struct {
	Metadata *patchMetadata `json:"metadata,omitempty"`
	Status   *patchStatus   `json:"status,omitempty"`

	beat bool // the status says nothing new
}

type patchMetadata struct {
	Annotations map[string]*string `json:"annotations"`
}

type patchStatus struct {
	Conditions []corev1.NodeCondition `json:"conditions"`
}

// annotations adds what have lacks of want, or has beside it under one of our keys.
func (p *patch) annotations(k keys, have, want map[string]string) {
	diff := map[string]*string{}
	for _, key := range k.written() {
		old, had := have[key]
		text, wanted := want[key]
		switch {
		case wanted && (!had || old != text):
			diff[key] = &text
		case had && !wanted:
			diff[key] = nil
		}
	}
	if len(diff) > 0 {
		p.Metadata = &patchMetadata{Annotations: diff}
	}
}

// condition adds c, as of now. The time of its last transition stays if its status does.
func (p *patch) condition(n *corev1.Node, c corev1.NodeCondition, now time.Time) {
	c.LastHeartbeatTime = metav1.NewTime(now)
	c.LastTransitionTime = c.LastHeartbeatTime
	for _, have := range n.Status.Conditions {
		if isNetworkCondition(have) && have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
	}
	p.Status = &patchStatus{Conditions: []corev1.NodeCondition{c}}
}

// empty reports whether there is nothing to send.
func (p *patch) empty() bool { return p.Metadata == nil && p.Status == nil }

// claims reports whether it says that pods have a network.
func (p *patch) claims() bool {
	return p.Status != nil && p.Status.Conditions[0].Status == corev1.ConditionFalse
}

// body is the patch on the wire. It cannot fail: a patch has texts and times only.
func (p *patch) body() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		return nil
	}
	return b
}
