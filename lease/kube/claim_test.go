package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/test/await"
	"weft/test/fakekube"
)

// wantRefused waits for just these Nodes to be refused because their podCIDRs are another's.
func (tt *tester) wantRefused(want ...string) {
	tt.t.Helper()
	await.NoDiff(tt.t, func() string {
		got := []string{}
		for _, r := range tt.last().Rejected {
			if r.Reason == lease.RejectOverlapsPeer {
				got = append(got, r.Key)
			}
		}
		return cmp.Diff(append([]string{}, want...), got)
	})
}

// TestAnotherNodesPodCIDR has Nodes whose podCIDRs overlap those of m, which was there before,
// through all that can become of m.
func TestAnotherNodesPodCIDR(t *testing.T) {
	t.Parallel()
	const prefix = "flannel.alpha.coreos.com/"
	const m = "m 10.244.2.0/24 192.0.2.2"
	squatters := map[string]string{"0": "10.244.2.0/25", "1": "10.244.2.0/24", "2": "10.244.2.0/23",
		"z": "10.244.2.128/25"}
	cut := func(key string) func(*corev1.Node) {
		return func(n *corev1.Node) { delete(n.Annotations, prefix+key) }
	}
	for _, tt := range []struct {
		name   string
		change func(*corev1.Node) // of m
		want   []string           // besides b; without m's squatters
	}{
		{"nothing", func(*corev1.Node) {}, []string{m}},
		{"address is garbage", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = "vandal" }, []string{m}},
		{"data is garbage", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = "{" }, []string{m}},
		{"no address", cut("public-ip"), nil},
		{"our address", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = "192.0.2.1" }, nil},
		{"no mark", cut("kube-subnet-manager"), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := fakekube.New(t)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Put(peer("m", "10.244.2.0/24", "192.0.2.2"))
			s.Put(peer("b", "10.244.9.0/24", "192.0.2.9"))
			d := newTester(t, s, configOf(s, "a"), nil)
			during(t, d.Run)
			d.wantPeers(m, "b 10.244.9.0/24 192.0.2.9")
			for name, cidr := range squatters {
				s.Put(peer(name, cidr, "192.0.2.66"))
			}
			d.wantRefused("0", "1", "2", "z")
			s.Change("m", tt.change)
			// What comes later shows that all that was seen, and none of it is taken up late.
			for i, addr := range []string{"192.0.2.91", "192.0.2.92"} {
				s.Change("b", func(n *corev1.Node) { n.Annotations[prefix+"public-ip"] = addr })
				d.wantPeers(append(tt.want[:len(tt.want):len(tt.want)], "b 10.244.9.0/24 "+addr)...)
				d.wantRefused("0", "1", "2", "z")
				if i == 0 {
					s.Put(peer("0", squatters["0"], "192.0.2.67"))
				}
			}
			s.Put(peer("m", "10.244.2.0/24", "192.0.2.2"))
			d.wantPeers(m, "b 10.244.9.0/24 192.0.2.92")
			s.Change("m", tt.change)
			s.Remove("m") // and with it its claim
			d.wantPeers("2 10.244.2.0/23 192.0.2.66", "b 10.244.9.0/24 192.0.2.92")
			d.wantRefused("0", "1", "z")
		})
	}
}

// TestAFormerPodCIDR is free for another once its Node is gone, has others, or has left before
// the other came.
func TestAFormerPodCIDR(t *testing.T) {
	const prefix = "flannel.alpha.coreos.com/"
	for name, leave := range map[string]func(*fakekube.Server){
		"deleted": func(s *fakekube.Server) { s.Remove("m") },
		"another podCIDR": func(s *fakekube.Server) {
			s.Change("m", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"192.168.7.0/24"} })
		},
		"no mark": func(s *fakekube.Server) {
			s.Change("m", func(n *corev1.Node) { delete(n.Annotations, prefix+"kube-subnet-manager") })
		},
		"never a mark": func(s *fakekube.Server) {
			s.Remove("m")
			s.Put(plain("m", "10.244.2.0/24"))
		},
		"made anew, garbage": func(s *fakekube.Server) {
			s.Remove("m")
			n := peer("m", "10.244.2.0/24", "garbage")
			s.Put(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakekube.New(t)
			s.Put(plain("a", "10.244.1.0/24"))
			s.Put(peer("m", "10.244.2.0/24", "192.0.2.2"))
			tt := newTester(t, s, configOf(s, "a"), nil)
			during(t, tt.Run)
			tt.wantPeers("m 10.244.2.0/24 192.0.2.2")
			leave(s)
			s.Put(peer("n", "10.244.2.0/25", "192.0.2.3"))
			tt.wantPeers("n 10.244.2.0/25 192.0.2.3")
			if alarm := tt.Status().Alarm; alarm != "" {
				t.Errorf("alarm %q", alarm)
			}
			if strings.HasPrefix(name, "no mark") { // whoever comes back finds it taken
				s.Put(peer("m", "10.244.2.0/24", "192.0.2.2"))
				tt.wantRefused("m")
				tt.wantPeers("n 10.244.2.0/25 192.0.2.3")
			}
		})
	}
}

// TestAClaimOutlivesARestart goes by the cache, while the Node is garbage.
func TestAClaimOutlivesARestart(t *testing.T) {
	const prefix = "flannel.alpha.coreos.com/"
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	s.Put(peer("m", "10.244.2.0/24", "192.0.2.2"))
	cached := lastState(t, s)
	s.Change("m", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = "{" })
	s.Put(peer("0", "10.244.2.0/23", "192.0.2.66"))
	s.Put(peer("1", "10.244.2.0/24", "192.0.2.66"))
	tt := newTester(t, s, configOf(s, "a"), cached)
	during(t, tt.Run)
	tt.wantRefused("0", "1")
	tt.wantPeers("m 10.244.2.0/24 192.0.2.2")
}

// TestWhoANodeIsIsItsName has a stranger call itself what a Node is called that does not parse.
func TestWhoANodeIsIsItsName(t *testing.T) {
	const prefix = "flannel.alpha.coreos.com/"
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	m := peer("m", "10.244.2.0/24", "192.0.2.2")
	m.Annotations[prefix+"weft"] = `{"Node":"m"}`
	s.Put(m)
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantPeers("m 10.244.2.0/24 192.0.2.2")
	s.Change("m", func(n *corev1.Node) { n.Annotations[prefix+"backend-data"] = "{" })
	z := peer("z", "10.244.3.0/24", "192.0.2.66")
	z.Annotations[prefix+"weft"] = `{"Node":"m"}`
	s.Put(z)
	tt.wantPeers("m 10.244.2.0/24 192.0.2.2", "z 10.244.3.0/24 192.0.2.66")
}

// TestFamiliesThatAreOff are no part of a peer, and nothing that two could both claim.
func TestFamiliesThatAreOff(t *testing.T) {
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24", "fd00:244:0:1::/64"))
	for name, cidr := range map[string]string{"b": "10.244.2.0/24", "c": "10.244.3.0/24"} {
		n := peer(name, cidr, "192.0.2."+cidr[7:8])
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, "fd00:244:0:2::/64")
		s.Put(n)
	}
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2", "c 10.244.3.0/24 192.0.2.3")
}

// TestALongOutage is asked about again and again, and not more and more seldom.
func TestALongOutage(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
	s.Break(http.StatusServiceUnavailable)
	before := len(s.Lists())
	s.CutWatches()
	await.NoDiff(t, func() string {
		// each attempt asks twice; up to ten seconds apart, these would take a minute
		if n := len(s.Lists()) - before; n < 16 {
			return fmt.Sprintf("%d questions", n)
		}
		return ""
	})
	s.Put(peer("b", "10.244.2.0/24", "192.0.2.2"))
	s.Break(0)
	tt.wantPeers("b 10.244.2.0/24 192.0.2.2")
}

// TestASecondNodeWithAPodCIDR waits until the Node that has it is gone, and says so. It has never said how it
// is reached, so that nobody sends to it.
func TestASecondNodeWithAPodCIDR(t *testing.T) {
	t.Parallel()
	const prefix, cidr = "flannel.alpha.coreos.com/", "10.244.1.0/24"
	s := fakekube.New(t)
	s.Put(peer("first", cidr, "192.0.2.9"))
	s.Put(plain("a", cidr))
	c := newObservedOf(t, s, nil)
	c.SetDataPath("routes: not in place yet", "", "")
	c.wantState(lease.Acquiring, `"first"`)
	c.wantCondition("True", reasonDuplicate, `"first"`)
	c.wantEvent("Warning", reasonDuplicate, `"first"`)
	c.wantPeers("first 10.244.1.0/24 192.0.2.9")
	s.Change("first", func(n *corev1.Node) { delete(n.Annotations, prefix+"kube-subnet-manager") })
	c.wantPeers() // that its mark is gone gives us nothing
	c.wantState(lease.Acquiring, `"first"`)
	if a := s.Node("a").Annotations; a[prefix+"public-ip"] != "" || c.last().Own.V4.IsValid() {
		t.Errorf("annotations %v, own %s", a, c.last().Own)
	}
	s.Remove("first")
	c.wantState(lease.Held, "")
	c.SetDataPath("", "", "")
	c.wantEvent("Normal", reasonUp, "over after")
	c.wantCondition("False", reasonUp, messageUp)
	if a := s.Node("a").Annotations; a[prefix+"public-ip"] != "192.0.2.1" {
		t.Errorf("annotations %v", a)
	}
	s.Put(peer("second", cidr, "192.0.2.9")) // which is the newcomer now
	c.wantEvent("Warning", reasonDuplicate, `"second"`)
	c.wantState(lease.Held, "")
}

// TestAPodCIDRThatOurNodeHad stays ours without the cache, since our Node still says how it is reached.
func TestAPodCIDRThatOurNodeHad(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(peer("a", "10.244.1.0/24", "192.0.2.1"))
	s.Put(peer("b", "10.244.1.0/24", "192.0.2.9"))
	tt := newTester(t, s, configOf(s, "a"), nil)
	during(t, tt.Run)
	tt.wantState(lease.Held, "")
}
