package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// saysEvent waits for an Event about n that kubectl describe node shows.
func (n *Node) saysEvent(t *testing.T, kind, reason, message string) {
	t.Helper()
	UntilWithin(t, 2*Patience, fmt.Sprintf("event %s %s", kind, reason), func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		of := fmt.Sprintf("involvedObject.kind=Node,involvedObject.name=%s", n.Object)
		all, err := n.cluster.Admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: of})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range all.Items {
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Message, message) && e.Source.Component == "weftd" &&
				(e.InvolvedObject.UID == obj.UID || string(e.InvolvedObject.UID) == n.Object) { // kubectl describe shows Events with either
				t.Logf("%s %s x%d: %s", e.Type, e.Reason, e.Count, e.Message)
				return nil
			}
			said = append(said, e.Type+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events %q", said)
	})
}

// A node that has lost its right to read says so after a restart wherever it can. /readyz and the status name
// the right at once. The condition and an Event follow, if it may write them. Packets go on.
func TestTheNodeTells(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	a, b := c.AddNode(t, "a", NodeOptions{}), c.AddNode(t, "b", NodeOptions{})
	pods := []*Pod{a.AddPod(t), b.AddPod(t)}
	AllReach(t, pods, 4)
	networkIs(t, a, corev1.ConditionFalse, "FlannelIsUp", "Flannel is running on this node")
	all, err := Rules()
	if err != nil {
		t.Fatal(err)
	}
	var writing []rbacv1.PolicyRule
	for _, r := range all {
		if r.Resources[0] != "nodes" {
			writing = append(writing, r)
		}
	}
	if err := c.grant(t.Context(), writing); err != nil {
		t.Fatal(err)
	}
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := a.Daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Log(a.NotReadyFor(t, "API server: refuses us", "forbidden", "ClusterRole", `resource "nodes"`))
	s := a.StatusIs(t, "is refused", func(s Status) error {
		if !s.Store.Refuses || s.Store.Connected {
			return fmt.Errorf("%+v", s.Store)
		}
		return nil
	})
	out, err := a.Command(t.Context(), c.programs.weft, "status", "--control-socket="+a.ControlSocket)
	if text := string(out); strings.Contains(text, "NOT ANSWERING") || !strings.Contains(text, "REFUSES US") {
		t.Errorf("status, %v, after %v:\n%s", err, s.NotReady, text)
	}
	AllReach(t, pods, 4)
	networkIs(t, a, corev1.ConditionFalse, "APIAccessDenied", "add it, and see that a ClusterRoleBinding names the account")
	a.saysEvent(t, "Warning", "APIAccessDenied", "forbidden")
	if err := c.grant(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := a.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	a.saysEvent(t, "Normal", "FlannelIsUp", "over after")
	networkIs(t, a, corev1.ConditionFalse, "FlannelIsUp", "Flannel is running on this node")
}
