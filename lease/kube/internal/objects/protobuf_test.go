package objects

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// whole is a Node with a bit of everything, as Kubernetes' own types have it.
func whole() *corev1.Node {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "n", UID: "u", ResourceVersion: "77", Generation: 3, CreationTimestamp: at,
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"x/y": "z", "empty": ""},
			Finalizers:    []string{"f"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:x":{}}`)}},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24", "fd00::/64"}, Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: "NoSchedule", TimeAdded: &at}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{
				{Type: "Ready", Status: "True", LastHeartbeatTime: at, LastTransitionTime: at, Reason: "r", Message: strings.Repeat("m", 300)},
				{Type: "NetworkUnavailable", Status: "False"},
			},
			Images: []corev1.ContainerImage{{Names: []string{"one", "two"}, SizeBytes: 1 << 40}},
		},
	}
}

// same compares what we read with what Kubernetes' own types do.
func same(t *testing.T, want *corev1.Node, got *Node) {
	t.Helper()
	var wantSlim, gotSlim Node
	b, err := json.Marshal(corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: want.Name, UID: want.UID, ResourceVersion: want.ResourceVersion, CreationTimestamp: want.CreationTimestamp, Annotations: want.Annotations},
		Spec:       corev1.NodeSpec{PodCIDR: want.Spec.PodCIDR, PodCIDRs: want.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Conditions: want.Status.Conditions},
	})
	if err == nil {
		err = json.Unmarshal(b, &wantSlim)
	}
	if err != nil {
		return // a time beyond what JSON can say
	}
	if b, err = json.Marshal(got); err == nil {
		err = json.Unmarshal(b, &gotSlim)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantSlim, gotSlim); d != "" {
		t.Error(d)
	}
}

func TestUnmarshal(t *testing.T) {
	b, err := whole().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var n Node
	if err := n.Unmarshal(b); err != nil {
		t.Fatal(err)
	}
	same(t, whole(), &n)
	if n.ManagedFields != nil || n.Labels != nil {
		t.Error("more is decoded than is read")
	}
	for i := range b { // every truncation is an error or a shorter message, and no panic
		var m Node
		if err := m.Unmarshal(b[:i]); err != nil && !errors.Is(err, ErrProtobuf) {
			t.Fatalf("undocumented error %v", err)
		}
	}
	same(t, whole(), n.DeepCopyObject().(*Node))

	list := corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "9", Continue: "c"}, Items: []corev1.Node{*whole(), *whole()}}
	if b, err = list.Marshal(); err != nil {
		t.Fatal(err)
	}
	var l NodeList
	if err := l.Unmarshal(b); err != nil || l.ResourceVersion != "9" || l.Continue != "c" || len(l.Items) != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	same(t, whole(), &l.DeepCopyObject().(*NodeList).Items[1])

	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Hostname: "h"}}
	if b, err = pod.Marshal(); err != nil {
		t.Fatal(err)
	}
	var p Pod
	if err := p.Unmarshal(b); err != nil || p.Name != "p" || p.Spec.NodeName != "n" {
		t.Fatalf("%+v, %v", p, err)
	}
}

// FuzzUnmarshal holds the decoder against Kubernetes' own: what both read is the same.
func FuzzUnmarshal(f *testing.F) {
	b, err := whole().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0x0a, 0x02, 0x0a, 0x00, 0x10, 0x01})
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		var want corev1.Node
		var got Node
		errWant, err := want.Unmarshal(b), got.Unmarshal(b)
		if err != nil && !errors.Is(err, ErrProtobuf) {
			t.Fatalf("undocumented error %v", err)
		}
		if errWant == nil && err == nil { // ours is strict: no groups, no numbers of more than 64 bits
			same(t, &want, &got)
		}
	})
}
