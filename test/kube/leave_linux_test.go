package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/test/lab/probe"
	"weft/test/traffic"
)

// A Node that is deleted and made again may get another podCIDR. Its new pods have a network, its old ones
// what is left of theirs until they are deleted, and somebody is told to do that.
func TestAnotherPodCIDR(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	n, other := c.AddNode(t, "a", NodeOptions{}), c.AddNode(t, "b", NodeOptions{})
	old, far := n.AddPod(t), other.AddPod(t)
	AllReach(t, []*Pod{old, far}, 4)
	gateway := probe.Endpoint{Name: "the old gateway", NS: n.NS, Addr: n.Subnets(t)[0].Addr().Next()}
	flow := traffic.Start(t, old.Endpoint(4), gateway, 500)
	n.Delete(t)
	c.Register(t, n, NodeOptions{PodCIDRs: []string{"10.244.210.0/24"}})
	n.StatusIs(t, "takes its new podCIDR", func(s Status) error {
		if s.Lease == nil || s.Lease.Subnet.String() != "10.244.210.0/24" || !s.Ready ||
			!strings.Contains(strings.Join(s.Notes, "\n"), "cni0 "+gateway.Addr.String()) {
			return fmt.Errorf("ready %v %v, lease %+v, notes %q", s.Ready, s.NotReady, s.Lease, s.Notes)
		}
		return nil
	})
	fresh := n.AddPod(t)
	AllReach(t, []*Pod{fresh, far}, 4)
	Reach(t, fresh.Endpoint(4), old.Endpoint(4))
	n.saysEvent(t, "Warning", "FormerPodCIDR", "delete these pods")
	flow.Lossless()
	old.Remove(t)
	n.StatusIs(t, "has no former pods any more", func(s Status) error {
		if strings.Contains(strings.Join(s.Notes, "\n"), "cni0") {
			return fmt.Errorf("notes %q", s.Notes)
		}
		return nil
	})
	l, err := n.NS.Netlink().LinkByName("cni0")
	if err != nil {
		t.Fatal(err)
	}
	if have, err := n.NS.Netlink().AddrList(l, netlink.FAMILY_V4); err != nil || len(have) != 1 ||
		have[0].IPNet.String() != "10.244.210.1/24" {
		t.Errorf("cni0 has %v, %v", have, err)
	}
	AllReach(t, []*Pod{fresh, far, n.AddPod(t)}, 4)
	n.saysEvent(t, "Normal", "FlannelIsUp", "over after")
}

// saysEvent waits for an Event about n that kubectl describe node shows.
func (n *Node) saysEvent(t *testing.T, kind, reason, message string) {
	t.Helper()
	UntilWithin(t, 2*Patience, fmt.Sprintf("event %s %s", kind, reason), func(ctx context.Context) error {
		obj, err := n.Get(ctx)
		if err != nil {
			return err
		}
		of := fmt.Sprintf("involvedObject.kind=Node,involvedObject.name=%s", n.Object)
		all, err := n.cluster.Admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx,
			metav1.ListOptions{FieldSelector: of})
		if err != nil {
			return err
		}
		var said []string
		for _, e := range all.Items {
			if e.Type == kind && e.Reason == reason && strings.Contains(e.Message, message) &&
				e.Source.Component == "weftd" &&
				(e.InvolvedObject.UID == obj.UID || string(e.InvolvedObject.UID) == n.Object) {
				// kubectl describe shows Events with either
				t.Logf("%s %s x%d: %s", e.Type, e.Reason, e.Count, e.Message)
				return nil
			}
			said = append(said, e.Type+" "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("events %q", said)
	})
}
