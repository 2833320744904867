package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft/lease"
	"weft/lease/belief"
	"weft/test/await"
	"weft/test/fakekube"
)

// observed is a manager whose condition and Events can be waited for.
type observed struct {
	*tester
	s *fakekube.Server
}

func newObserved(t *testing.T, change func(*Options)) observed {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	out := newObservedOf(t, s, change)
	out.wantState(lease.Held, "")
	out.SetDataPath("", "", "")
	out.wantCondition("False", reasonUp, messageUp)
	return out
}

// newObservedOf is newObserved with the Nodes of s, of which nothing is known yet.
func newObservedOf(t *testing.T, s *fakekube.Server, change func(*Options)) observed {
	s.Streams(false)
	c := configOf(s, "a")
	c.SetNodeNetworkUnavailable = true
	tt := newTester(t, s, c, change)
	tt.life.reporter.broken, tt.life.reporter.problem, tt.life.pace.probe = 50*time.Millisecond,
		20*time.Millisecond, 50*time.Millisecond
	during(t, tt.Run)
	return observed{tt, s}
}

func (c observed) wantCondition(status, reason, message string) {
	c.t.Helper()
	await.NoDiff(c.t, func() string {
		for _, have := range c.s.Node("a").Status.Conditions {
			if have.Type == corev1.NodeNetworkUnavailable && string(have.Status) == status && have.Reason == reason &&
				strings.Contains(have.Message, message) {
				return ""
			}
		}
		return fmt.Sprintf("conditions %q, want %s %s %s", conditions(c.s), status, reason, message)
	})
}

func (c observed) wantEvent(kind, reason, message string) {
	c.t.Helper()
	await.NoDiff(c.t, func() string {
		for _, e := range c.s.Events(reason) {
			about := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "a", UID: c.s.Node("a").UID}
			if e.Type == kind && strings.Contains(e.Message, message) && e.InvolvedObject == about && e.Count > 0 &&
				!e.LastTimestamp.Before(&e.FirstTimestamp) {
				return ""
			}
		}
		return fmt.Sprintf("events %+v, want %s %s %s", c.s.Events(reason), kind, reason, message)
	})
}

// Each thing that somebody should know shows in the condition, with the remedy, as long as it can be
// written, and in Events when it begins and when it is over.
func TestProblemsAreTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, status, reason, message string
		begin, end                    func(observed)
	}{
		{"a right to read is gone", "False", reasonDenied, `"nodes"`,
			func(c observed) {
				c.s.Deny("watch nodes", "list nodes")
				c.s.CutWatches()
			},
			func(c observed) { c.s.Allow() }},
		{"the API server serves no watch", "False", reasonSilent, "",
			func(c observed) {
				c.s.Break(503)
				c.s.CutWatches()
			},
			func(c observed) { c.s.Break(0) }},
		{"another Node has our podCIDR", "False", reasonDuplicate, `"twin"`,
			func(c observed) { c.s.Put(peer("twin", "10.244.1.0/24", "192.0.2.9")) },
			func(c observed) { c.s.Remove("twin") }},
		{"our podCIDR is gone, and another's", "True", reasonLost, "",
			func(c observed) {
				c.s.Change("a", func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil })
				c.s.Put(plain("heir", "10.244.1.0/24"))
			},
			func(c observed) {
				c.s.Remove("heir")
				c.s.Change("a", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} })
			}},
		{"packets cannot go", "True", reasonDown, "the device flannel.1 is gone",
			func(c observed) { c.SetDataPath("the device flannel.1 is gone", "", "") },
			func(c observed) { c.SetDataPath("", "", "") }},
		{"pods of a former podCIDR", "False", reasonFormer, "delete these pods",
			func(c observed) { c.SetDataPath("", "cni0 has 10.244.9.1/24: delete these pods", "") },
			func(c observed) { c.SetDataPath("", "", "") }},
		{"no peer answers", "False", reasonAlone, "weft peers on this node",
			func(c observed) { c.SetDataPath("", "", "no peer answers: weft peers on this node says why") },
			func(c observed) { c.SetDataPath("", "", "") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := newObserved(t, nil)
			tt.begin(c)
			c.wantEvent("Warning", tt.reason, tt.message)
			tt.end(c)
			c.wantEvent("Normal", reasonUp, "")
		})
	}
}

// A node without a podCIDR says that, and not what follows from it.
func TestANodeWithoutAPodCIDRSaysSo(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a"))
	c := newObservedOf(t, s, nil)
	c.SetDataPath("routes: not in place yet", "", "")
	c.wantCondition("True", reasonNoSubnet, "--allocate-node-cidrs")
	c.wantEvent("Warning", reasonNoSubnet, "--allocate-node-cidrs")
	if e := s.Events(reasonDown); len(e) > 0 {
		t.Errorf("events %+v", e)
	}
}

// The condition says it too. What it says may be a minute late when packets go all the same: a test
// has no such patience, and asks a node that has just started.
func TestTheConditionTellsTheRest(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24", "fd00:9::/64")) // IPv6 is off, which is meant
	c := configOf(s, "a")
	c.SetNodeNetworkUnavailable = true
	dir := filepath.Join(t.TempDir(), "not a directory")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tt := newTester(t, s, c, func(o *Options) { o.Cache = belief.NewCache(dir, "test") })
	tt.life.reporter.problem = 0
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	s.Put(peer("twin", "10.244.1.0/24", "192.0.2.9"))
	await.NoDiff(t, func() string {
		tt.mu.Lock()
		defer tt.mu.Unlock()
		if len(tt.sets) == 0 {
			return "no set"
		}
		return ""
	})
	await.NoDiff(t, func() string {
		tt.Manager.mu.Lock()
		defer tt.Manager.mu.Unlock()
		if since := tt.life.reporter.since; len(since) != 2 {
			return fmt.Sprintf("problems since %v", since)
		}
		return ""
	})
	tt.SetDataPath("", "", "")
	is := observed{tt, s}
	is.wantCondition("False", reasonDuplicate, messageBut)
	is.wantCondition("False", reasonDuplicate, `"twin"`)
	is.wantCondition("False", reasonDuplicate, "--cache-dir")
}

// A weftd that carries the packets itself takes back at its stop that pods have a network, and says so again at
// the next start. The kernel's data path goes on.
func TestAStopShowsWhereWeftCarriesThePackets(t *testing.T) {
	for _, kernels := range []bool{false, true} {
		s := fakekube.New(t)
		s.Put(plain("a", "10.244.1.0/24"))
		c := configOf(s, "a")
		c.SetNodeNetworkUnavailable = true
		start := func() (stop func(), is observed) {
			tt := newTester(t, s, c, func(o *Options) {
				if kernels {
					o.Local.Attrs.Weft.Recv = nil
				}
			})
			stop = during(t, tt.Run)
			tt.wantState(lease.Held, "")
			tt.SetDataPath("", "", "")
			is = observed{tt, s}
			is.wantCondition("False", reasonUp, messageUp)
			return stop, is
		}
		stop, is := start()
		stop()
		if kernels {
			is.wantCondition("False", reasonUp, messageUp)
			continue
		}
		is.wantCondition("Unknown", reasonStopped, "again")
		start()
	}
}

// So it does when the stop comes while the first word is on its way.
func TestAStopTakesBackWhatItDidNotSeeAnswered(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	c := configOf(s, "a")
	c.SetNodeNetworkUnavailable = true
	tt := newTester(t, s, c, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s.OnPatch(func(body []byte) {
		var p patch
		if err := json.Unmarshal(body, &p); err != nil {
			t.Error(err)
		} else if p.Status != nil && p.Status.Conditions[0].Status == corev1.ConditionFalse {
			cancel()
		}
	})
	tt.SetDataPath("", "", "")
	if err := tt.Run(ctx); err != nil {
		t.Error(err)
	}
	if got := conditions(s); len(got) != 1 || !strings.Contains(got[0], reasonStopped) {
		t.Errorf("conditions %q", got)
	}
}

// A condition that stays is written again now and then, with what it says and since when unchanged.
func TestHeartbeat(t *testing.T) {
	s := fakekube.New(t)
	n := plain("a", "10.244.1.0/24")
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	n.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: reasonUp, Message: messageUp,
			LastHeartbeatTime: long, LastTransitionTime: long}}
	s.Put(n)
	c := configOf(s, "a")
	c.SetNodeNetworkUnavailable = true
	tt := newTester(t, s, c, nil)
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	tt.SetDataPath("", "", "")
	await.NoDiff(t, func() string {
		have := s.Node("a").Status.Conditions[0]
		if !have.LastHeartbeatTime.After(long.Time) || !have.LastTransitionTime.Equal(&long) ||
			have.Reason != reasonUp {
			return fmt.Sprintf("%+v", have)
		}
		return ""
	})
	before := len(s.Patches())
	tt.SetDataPath("", "x", "") // it is looked at once more, and is not due
	tt.SetDataPath("", "", "")
	s.Change("a", func(n *corev1.Node) { delete(n.Annotations, DefaultPrefix+"/weft") })
	await.NoDiff(t, func() string {
		if len(s.Patches()) == before {
			return "the annotation is not repaired"
		}
		return ""
	})
	if p := s.Patches()[before]; strings.Contains(p, "conditions") {
		t.Errorf("a heartbeat before its time: %s", p)
	}
}

// An Event that comes again is counted up; what comes too fast is told as one; without the right to
// write Events all else goes on.
func TestEventsAreFew(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	h := newEventWriter(tt.client, newTable(tt.client.keys, tt.o.Config, "a", func() {}, func(news) {}),
		tt.o.Logger)
	now := time.Now()
	for i := range 5 {
		h.add(newNotice(corev1.EventTypeWarning, reasonCache, fmt.Sprint("try ", i), now))
	}
	for i := range 100 {
		h.add(newNotice(corev1.EventTypeWarning, fmt.Sprint("Reason", i), "", now))
	}
	if len(h.notices) != maxNotices {
		t.Errorf("%d notices", len(h.notices))
	}
	h.notices = h.notices[:0]
	post := func(n notice) {
		t.Helper()
		if err := h.post(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	post(notice{corev1.EventTypeWarning, reasonCache, "first", now, now, 5})
	post(notice{corev1.EventTypeWarning, reasonDown, "another in the same moment", now, now, 1})
	post(notice{corev1.EventTypeWarning, reasonCache, "second", now, now.Add(time.Minute), 2})
	got := s.Events(reasonCache)
	if len(got) != 1 || got[0].Count != 7 || got[0].Message != "second" ||
		!got[0].FirstTimestamp.Before(&got[0].LastTimestamp) || len(s.Events(reasonDown)) != 1 {
		t.Errorf("events %+v", s.Events(""))
	}
	s.ExpireEvents(reasonCache)
	post(notice{corev1.EventTypeWarning, reasonCache, "third", now, now.Add(2 * time.Minute), 1})
	if got := s.Events(reasonCache); len(got) != 1 || got[0].Count != 1 {
		t.Errorf("events %+v", got)
	}
	s.Deny("create events")
	if err := h.post(t.Context(), notice{corev1.EventTypeWarning, reasonLost, "x", now, now, 1}); !Refuses(err) {
		t.Errorf("refused: %v", err)
	}
	h.back(notice{corev1.EventTypeWarning, reasonLost, "x", now, now, 1})
	h.add(newNotice(corev1.EventTypeWarning, reasonLost, "y", now))
	if n, ok := h.take(); !ok || n.count != 2 || n.message != "y" {
		t.Errorf("%+v", n)
	}
	if d := cmp.Diff("worker.example.com.", strings.TrimRight(eventName("worker.example.com", "x", now),
		"0123456789abcdef")); d != "" {
		t.Error(d)
	}
}
