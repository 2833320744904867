package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/lease"
)

func TestDataPath(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	var d dataPath
	says := func(now time.Time, status, message string, next time.Time) {
		t.Helper()
		c, n := d.condition(now, time.Minute)
		if status == "" && c != nil || status != "" && (c == nil || c.Status != status || c.Message != message) || !n.Equal(next) {
			t.Errorf("at %d: %+v until %v", now.Unix()-1000, c, n)
		}
	}
	says(at(0), "", "", time.Time{})
	d = d.set("no device", at(0))
	says(at(1), "", "", at(60))
	d = d.set("no route", at(30)) // broken all along
	says(at(59), "", "", at(60))
	says(at(60), conditionTrue, messageDown+"no route", time.Time{})
	d = d.set("", at(70))
	says(at(70), conditionFalse, messageUp, time.Time{})
	d = d.set("no device", at(80))
	says(at(139), "", "", at(140))
	d = d.set(strings.Repeat("x", 1<<20), at(90))
	if c, _ := d.condition(at(140), time.Minute); len(c.Message) > maxMessage {
		t.Errorf("message of %d bytes", len(c.Message))
	}
}

func conditions(s *apiServer) (out []string) {
	for _, c := range s.node("a").Status.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return out
}

func TestCondition(t *testing.T) {
	s := newAPIServer(t)
	n := plain("a", "10.244.1.0/24")
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	n.Status.Conditions = []corev1.NodeCondition{ready, {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}}
	s.put(n)
	c := s.config("a")
	c.SetNodeNetworkUnavailable = true
	tt := newTester(t, s, c, nil)
	tt.pace.broken = 50 * time.Millisecond
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	want := func(c ...string) {
		t.Helper()
		eventually(t, func() string { return cmp.Diff(append([]string{"Ready=True KubeletReady: "}, c...), conditions(s)) })
	}
	want("NetworkUnavailable=True NoRouteCreated: ") // nobody has said that packets flow
	tt.SetDataPath("")
	const up, down = "NetworkUnavailable=False FlannelIsUp: Flannel is running on this node", "NetworkUnavailable=True FlannelIsDown: weft carries no packets on this node: "
	want(up)
	first := s.node("a").Status.Conditions[1]
	if first.LastTransitionTime.IsZero() || first.LastTransitionTime != first.LastHeartbeatTime {
		t.Errorf("%+v", first)
	}
	tt.SetDataPath("the device flannel.1 is gone")
	want(down + "the device flannel.1 is gone")
	tt.SetDataPath("")
	want(up)
	s.change("a", func(n *corev1.Node) { // vandals
		n.Status.Conditions = []corev1.NodeCondition{ready, {Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "X"}}
	})
	want(up)
	s.change("a", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{ready} })
	want(up)

	// That the network is available another may say too, in other words.
	before := len(s.patched())
	s.change("a", func(n *corev1.Node) {
		n.Status.Conditions[1].Reason, n.Status.Conditions[1].LastTransitionTime = "RouteCreated", metav1.Now()
	})
	s.change("a", func(n *corev1.Node) { delete(n.Annotations, "flannel.alpha.coreos.com/weft") })
	eventually(t, func() string {
		if len(s.patched()) == before {
			return "the annotation is not repaired"
		}
		return ""
	})
	want("NetworkUnavailable=False RouteCreated: Flannel is running on this node")
}
