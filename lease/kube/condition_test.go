package kube

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/lease"
	"weft/test/await"
	"weft/test/fakekube"
)

// What cuts pods off is said after a minute, all else after half of one; a fault that is another by
// then has lasted as well, and nobody says in between that all is well.
func TestWhatLastsIsTold(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	r := reporter{broken: time.Minute, problem: 30 * time.Second}
	down, cache := problem{reasonDown, messageDown + "no device", true}, problem{reasonCache, "disk full", false}
	says := func(s int, status corev1.ConditionStatus, reason, message string, doubt bool, next int, news string,
		all ...problem) {
		t.Helper()
		tell, until := r.take(all, at(s))
		c, doubted := condition(r.active), r.doubt
		var got []string
		for _, n := range tell {
			got = append(got, n.kind+" "+n.reason+": "+n.message)
		}
		if c.Status != status || c.Reason != reason || c.Message != message || doubted != doubt ||
			(next == 0) != until.IsZero() || next != 0 && !until.Equal(at(next)) || strings.Join(got, ", ") != news {
			t.Errorf("at %d: %+v, doubt %v until %v, news %q", s, c, doubted, until, got)
		}
	}
	says(0, corev1.ConditionFalse, reasonUp, messageUp, false, 0, "")
	says(1, corev1.ConditionFalse, reasonUp, messageUp, true, 61, "", down)
	// the cause may change, down it is
	says(30, corev1.ConditionFalse, reasonUp, messageUp, true, 60, "",
		problem{reasonDown, messageDown + "no route", true}, cache)
	says(60, corev1.ConditionFalse, reasonCache, messageBut+"disk full", true, 61,
		"Warning StateNotSaved: disk full", down, cache)
	says(61, corev1.ConditionTrue, reasonDown, messageDown+"no device; disk full", false, 0,
		"Warning FlannelIsDown: "+messageDown+"no device", down, cache)
	says(70, corev1.ConditionTrue, reasonDown, messageDown+"no device; disk full", false, 0, "", down, cache)
	says(71, corev1.ConditionFalse, reasonCache, messageBut+"disk full", false, 0,
		"Normal FlannelIsDownOver: over after 1m10s: "+messageDown+"no device", cache)
	says(72, corev1.ConditionFalse, reasonUp, messageUp, false, 0,
		"Normal FlannelIsUp: over after 42s: disk full")
	says(80, corev1.ConditionFalse, reasonUp, messageUp, true, 140, "", down)
	says(90, corev1.ConditionFalse, reasonUp, messageUp, false, 0, "")
	if c := condition([]problem{{reasonDown, strings.Repeat("x", 1<<20), true}}); len(c.Message) > maxMessage {
		t.Errorf("message of %d bytes", len(c.Message))
	}
}

func conditions(s *fakekube.Server) (out []string) {
	for _, c := range s.Node("a").Status.Conditions {
		out = append(out, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return out
}

func TestCondition(t *testing.T) {
	s := fakekube.New(t)
	n := plain("a", "10.244.1.0/24")
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	n.Status.Conditions = []corev1.NodeCondition{ready,
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated"}}
	s.Put(n)
	c := configOf(s, "a")
	c.SetNodeNetworkUnavailable = true
	tt := newTester(t, s, c, nil)
	tt.life.reporter.broken, tt.life.reporter.problem = 50*time.Millisecond, 50*time.Millisecond
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	want := func(c ...string) {
		t.Helper()
		await.NoDiff(t, func() string {
			return cmp.Diff(append([]string{"Ready=True KubeletReady: "}, c...),
				conditions(s))
		})
	}
	want("NetworkUnavailable=True NoRouteCreated: ") // nobody has said that packets flow
	tt.SetDataPath("", "", "")
	const up, down = "NetworkUnavailable=False FlannelIsUp: Flannel is running on this node",
		"NetworkUnavailable=True FlannelIsDown: weft carries no packets on this node: "
	want(up)
	first := s.Node("a").Status.Conditions[1]
	if first.LastTransitionTime.IsZero() || first.LastTransitionTime != first.LastHeartbeatTime {
		t.Errorf("%+v", first)
	}
	tt.SetDataPath("the device flannel.1 is gone", "", "")
	want(down + "the device flannel.1 is gone")
	tt.SetDataPath("", "", "")
	want(up)
	s.Change("a", func(n *corev1.Node) { // vandals
		n.Status.Conditions = []corev1.NodeCondition{ready,
			{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "X"}}
	})
	want(up)
	s.Change("a", func(n *corev1.Node) { n.Status.Conditions = []corev1.NodeCondition{ready} })
	want(up)

	// That the network is available another may say too, in other words.
	before := len(s.Patches())
	s.Change("a", func(n *corev1.Node) {
		n.Status.Conditions[1].Reason, n.Status.Conditions[1].LastTransitionTime = "RouteCreated", metav1.Now()
	})
	s.Change("a", func(n *corev1.Node) { delete(n.Annotations, "flannel.alpha.coreos.com/weft") })
	await.NoDiff(t, func() string {
		if len(s.Patches()) == before {
			return "the annotation is not repaired"
		}
		return ""
	})
	want("NetworkUnavailable=False RouteCreated: Flannel is running on this node")
}

// TestInDoubtNothingIsSaidToBeWell has the data path break: for as long as it may mend by itself the
// condition is not written, and then with what it is.
func TestInDoubtNothingIsSaidToBeWell(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := lease.Status{State: lease.Held, StoreSeen: now}
	s.Own.V4 = netip.MustParsePrefix("10.244.1.0/24")
	r := reporter{conditions: true, broken: brokenFor, problem: problemFor, beat: beatLeast}
	for _, at := range []struct {
		after  time.Duration
		broken string
		want   corev1.ConditionStatus
	}{
		{0, "no device", ""}, {brokenFor - 1, "no device", ""},
		{brokenFor, "no device", corev1.ConditionTrue}, {2 * brokenFor, "", corev1.ConditionFalse},
	} {
		r.path = &DataPath{Broken: at.broken}
		r.update(s, nil, now.Add(at.after))
		var p patch
		r.condition(&p, &corev1.Node{}, 1, now.Add(at.after))
		got := corev1.ConditionStatus("")
		if p.Status != nil {
			got = p.Status.Conditions[0].Status
		}
		if got != at.want {
			t.Errorf("after %s of %q it says %q, want %q", at.after, at.broken, got, at.want)
		}
	}
}
