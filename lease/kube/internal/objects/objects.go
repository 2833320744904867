// Package objects is what weft reads of Kubernetes' Nodes and Pods. The types of k8s.io/api would
// decode all of an object: most of a Node is the list of the images that it has.
//
// The types have as much of runtime.Object, of JSON and of protobuf as client-go asks for. What the
// API server has beside, they skip; nothing that is not here can be written with them.
package objects

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of Nodes and Pods.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Version: "v1"} }

// AddToScheme registers the types.
func AddToScheme(s *runtime.Scheme) {
	s.AddKnownTypes(GroupVersion(), &Node{}, &NodeList{}, &Pod{})
	metav1.AddToGroupVersion(s, GroupVersion())
}

// Node is a Node. Of its metadata protobuf brings name, UID, resource version and annotations.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NodeSpec   `json:"spec"`
	Status            NodeStatus `json:"status"`
}

// NodeSpec is what the controller manager decides on.
type NodeSpec struct {
	PodCIDR  string   `json:"podCIDR,omitempty"`
	PodCIDRs []string `json:"podCIDRs,omitempty"`
}

// NodeStatus is what the kubelet and others report.
type NodeStatus struct {
	Conditions []NodeCondition `json:"conditions,omitempty"`
}

// NodeCondition is one thing that is true, false or unknown of a Node.
type NodeCondition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	LastHeartbeatTime  metav1.Time `json:"lastHeartbeatTime,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	Reason             string      `json:"reason,omitempty"`
	Message            string      `json:"message,omitempty"`
}

// NodeList is one page of Nodes.
type NodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Node `json:"items"`
}

// Pod is a Pod, of which only its Node is read.
type Pod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              PodSpec `json:"spec"`
}

// PodSpec says where a Pod runs; NodeName is empty until the scheduler has decided.
type PodSpec struct {
	NodeName string `json:"nodeName,omitempty"`
}

// Copy returns a Node that shares nothing that is ever changed.
func (n *Node) Copy() *Node {
	out := &Node{TypeMeta: n.TypeMeta, Spec: NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: slices.Clone(n.Spec.PodCIDRs)}}
	n.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(n.Status.Conditions)
	return out
}

// DeepCopyObject implements runtime.Object.
func (n *Node) DeepCopyObject() runtime.Object { return n.Copy() }

// DeepCopyObject implements runtime.Object.
func (l *NodeList) DeepCopyObject() runtime.Object {
	out := &NodeList{TypeMeta: l.TypeMeta, Items: make([]Node, 0, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].Copy())
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (p *Pod) DeepCopyObject() runtime.Object {
	out := &Pod{TypeMeta: p.TypeMeta, Spec: p.Spec}
	p.DeepCopyInto(&out.ObjectMeta)
	return out
}
