package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestWhatContradicts: a watch that has come to version 20 goes on at an API server.
func TestWhatContradicts(t *testing.T) {
	node := func(uid, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: types.UID(uid), ResourceVersion: version}}
	}
	other := node("u", "10")
	other.Annotations = map[string]string{"flannel.alpha.coreos.com/public-ip": "192.0.2.9"}
	another := node("u", "10")
	another.Spec.PodCIDR = "10.244.9.0/24"
	for _, tt := range []struct {
		name       string
		known, now *corev1.Node
		to         int64
		want       bool
	}{
		{"nothing has changed", node("u", "10"), node("u", "10"), 20, false},
		{"our Node was written since", node("u", "10"), node("u", "21"), 30, false},
		{"our Node is another one", node("u", "10"), node("v", "21"), 30, true},
		{"our Node is older", node("u", "10"), node("u", "9"), 30, true},
		{"our Node was written before, which was not told", node("u", "10"), node("u", "20"), 30, true},
		{"our Node says something else at a version that was used before", node("u", "10"), other, 30, true},
		{"our Node has another podCIDR at a version that was used before", node("u", "10"), another, 30, true},
		{"our Node is gone", node("u", "10"), nil, 30, true},
		{"our Node was made since", nil, node("u", "21"), 30, false},
		{"our Node was made before, which was not told", nil, node("u", "20"), 30, true},
		{"there is none yet", nil, nil, 30, false},
		{"it counts from further back", nil, nil, 19, true},
		{"it does not say how far it is", node("u", "10"), node("u", "10"), 0, false},
		{"our answer to a write came before the watch told it", node("u", "25"), node("u", "25"), 30, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := contradicts(tt.known, tt.now, 20, tt.to); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
