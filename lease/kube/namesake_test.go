package kube

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"weft/lease"
	"weft/lease/keeper"
	"weft/test/await"
	"weft/test/fakekube"
)

// living is who answers over the underlay.
type living struct {
	mu    sync.Mutex
	who   []string
	asked int
}

func (l *living) Answers(_ context.Context, a lease.Attrs) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	return slices.Contains(l.who, a.Address().String())
}

func (l *living) set(who ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.who = who
}

func (l *living) rounds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// TestNothingIsWrittenUnjudged: until it is known whether our Node is another machine's, nothing is written
// to it, though the Node is there and packets flow.
func TestNothingIsWrittenUnjudged(t *testing.T) {
	c := newTestCore(t)
	c.reporter.path, c.ours = &DataPath{}, &corev1.Node{ObjectMeta: plain("a", "10.244.1.0/24").ObjectMeta}
	if p, _, err := c.pending(); !p.empty() || err != nil {
		t.Errorf("%s, %v", p.body(), err)
	}
	c.writer.mayWrite = true
	if p, _, err := c.pending(); p.empty() || err != nil {
		t.Errorf("nothing is written, %v", err)
	}
}

// TestTwoMachinesOfOneName: one Node, two machines. Who starts waits and writes nothing as long as the other
// answers, and has the Node when that is silent.
func TestTwoMachinesOfOneName(t *testing.T) {
	t.Parallel()
	const public = "flannel.alpha.coreos.com/public-ip"
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	var there living
	with := func(addr, state string) func(*Options) {
		return func(o *Options) {
			o.State, o.Underlay = state, &there
			o.Local.Attrs = attrs(addr, `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)
		}
	}
	cfg := configOf(s, "a")
	cfg.SetNodeNetworkUnavailable = true
	first := newTester(t, s, cfg, with("192.0.2.1", "one"))
	stop := during(t, first.Run)
	first.wantState(lease.Held, "")
	if n := there.rounds(); n != 0 {
		t.Errorf("a first start asked %d times", n)
	}
	there.set("192.0.2.1")
	before := len(s.Patches())
	second := newTester(t, s, cfg, with("192.0.2.2", "two"))
	second.life.reporter.broken, second.life.reporter.problem = time.Millisecond, time.Millisecond
	stopSecond := during(t, second.Run)
	second.SetDataPath("", "", "")
	second.wantState(lease.Waiting, public)
	await.NoDiff(t, func() string { // an Event says it, the condition is the living machine's
		if len(s.Events(reasonNoSubnet)) == 0 {
			return "no Event"
		}
		return ""
	})
	if second.Status().Ready() {
		t.Error("ready")
	}
	if own := second.last().Own.Subnets; own != (lease.Subnets{}) {
		t.Errorf("it took %s", own)
	}
	if got := s.Patches()[before:]; len(got) != 0 {
		t.Errorf("it wrote %q", got)
	}
	first.wantState(lease.Held, "")

	// The first is gone, and its address silent.
	stop()
	there.set()
	second.wantState(lease.Held, "")
	await.NoDiff(t, func() string {
		if got := s.Node("a").Annotations[public]; got != "192.0.2.2" {
			return got
		}
		return ""
	})
	stopSecond()

	// It comes back from its own state directory, with another address: one round is enough. An address that
	// does not parse is nobody's, and neither is one behind which we are named.
	before = there.rounds()
	moved := newTester(t, s, cfg, with("192.0.2.3", "two"))
	stopMoved := during(t, moved.Run)
	moved.wantState(lease.Held, "")
	if n := there.rounds() - before; n != 1 {
		t.Errorf("asked %d times", n)
	}
	stopMoved()
	there.set("203.0.113.1")
	s.Change("a", func(n *corev1.Node) {
		n.Annotations[public] = "203.0.113.1"
		n.Annotations[public+"-overwrite"] = "203.0.113.1"
	})
	before = there.rounds()
	again := newTester(t, s, cfg, with("192.0.2.3", "two"))
	stopAgain := during(t, again.Run)
	again.wantState(lease.Held, "")
	stopAgain()
	s.Change("a", func(n *corev1.Node) { delete(n.Annotations, public+"-overwrite") })
	again = newTester(t, s, cfg, with("192.0.2.3", "two"))
	during(t, again.Run)
	again.wantState(lease.Held, "")
	if n := there.rounds() - before; n != 0 {
		t.Errorf("asked %d times", n)
	}
	if text := strings.Join(s.Patches(), "\n"); !strings.Contains(text, `\"State\":\"two\"`) {
		t.Errorf("no state in %s", text)
	}
}

// TestWhoComesLaterIsNobody: of two that start together the later one keeps the Node for as long as it lives;
// but what somebody writes to the Node of a machine that has had it for a while is put right, whoever
// answers.
func TestWhoComesLaterIsNobody(t *testing.T) {
	for after, want := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
		c := newTestCore(t)
		c.ours = &corev1.Node{ObjectMeta: peer("a", "10.244.1.0/24", "192.0.2.2").ObjectMeta}
		began := c.Now
		c.namesake.right, c.namesake.uid = began, c.ours.UID
		for _, more := range []time.Duration{0, time.Second, 10 * time.Second, time.Hour} {
			c.Now = began.Add(after + more)
			if err := c.otherMachine(); (err != nil) != want {
				t.Errorf("first seen after %s, and now %s later: %v", after, more, err)
			}
			c.namesake.answered(Answered{c.namesake.asked, true}, c.Now)
		}
	}
}

// word is our Node as a weft at addr writes it.
func word(t *testing.T, c *Life, addr string) *corev1.Node {
	t.Helper()
	a := attrs(addr, `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)
	a.Weft = &lease.Weft{Node: "a", Name: addr, State: "0123456789abcdef"}
	n := peer("a", "10.244.1.0/24", addr).ObjectMeta
	var err error
	if n.Annotations, err = c.keys.encode(a, c.o.Backend); err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: n}
}

// TestWhoWasAwayAsks: a machine that was suspended while another one of its name found it silent finds the
// whole word of that one at its Node. It asks, and does not write over a machine that lives; its own former
// word at another address is nobody's.
func TestWhoWasAwayAsks(t *testing.T) {
	for _, lives := range []bool{true, false} {
		c := newTestCore(t)
		c.ours = word(t, c, "192.0.2.2")
		c.namesake.right, c.namesake.uid = c.Now, c.ours.UID
		c.Now = c.Now.Add(time.Hour)
		for range 2 * namesakeRounds {
			_ = c.otherMachine() // what it says at last is looked at
			c.namesake.answered(Answered{c.namesake.asked, lives}, c.Now)
			c.Now = c.Now.Add(2 * namesakeWait)
		}
		if err := c.otherMachine(); (err != nil) != lives {
			t.Errorf("the other lives: %v; %v", lives, err)
		}
	}
	c := newTestCore(t)
	c.ours = word(t, c, "192.0.2.2")
	c.namesake.right, c.namesake.uid = c.Now, c.ours.UID
	c.Now = c.Now.Add(time.Hour)
	for _, ours := range []*lease.Attrs{&c.namesake.said, &c.namesake.sent} {
		*ours, _ = c.keys.decode(c.ours.Annotations)
		if err := c.otherMachine(); err != nil || c.namesake.asked != 0 {
			t.Errorf("what we said, or wrote, before our address changed: asked %d times, %v", c.namesake.asked, err)
		}
		*ours = lease.Attrs{}
	}
}

// TestAContestOutlivesGarbage: that nobody can read any more what our Node says gives it to nobody while the
// machine lives of which it told; that the word was taken away gives it to us.
func TestAContestOutlivesGarbage(t *testing.T) {
	const public = "flannel.alpha.coreos.com/public-ip"
	c := newTestCore(t)
	c.ours = word(t, c, "192.0.2.2")
	_ = c.otherMachine() // it asks
	c.namesake.answered(Answered{c.namesake.asked, true}, c.Now)
	c.ours.Annotations[public] = "garbage"
	for round := range 4 { // one without an answer is no silence yet
		c.Now = c.Now.Add(time.Minute)
		if err := c.otherMachine(); err == nil {
			t.Error("a machine that lives is written over")
		}
		c.namesake.answered(Answered{c.namesake.asked, round != 1}, c.Now)
	}
	delete(c.ours.Annotations, public)
	if err := c.otherMachine(); err != nil {
		t.Errorf("the administrator gave it to us: %v", err)
	}
}

// TestANodeMadeAnewIsNotOursYet: of two machines that live, the one that waited may be the first to write to
// a Node that was deleted and made anew; then the other one asks, and they do not write over each other for
// good.
func TestANodeMadeAnewIsNotOursYet(t *testing.T) {
	c := newTestCore(t)
	c.ours = &corev1.Node{ObjectMeta: peer("a", "10.244.1.0/24", "192.0.2.2").ObjectMeta}
	c.namesake.right, c.namesake.uid = c.Now, c.ours.UID
	c.Now = c.Now.Add(time.Hour)
	if err := c.otherMachine(); err != nil {
		t.Errorf("what was ours for an hour: %v", err)
	}
	c.ours.UID = "another"
	if err := c.otherMachine(); err == nil {
		t.Error("nobody is asked about a Node that was made anew")
	}
	c.namesake.answered(Answered{c.namesake.asked, true}, c.Now)
	if err := c.otherMachine(); err == nil {
		t.Error("a machine that lives, and was first at the new Node, is written over")
	}
}

// TestWhoWasSilentIsAskedAboutAnotherNode: that nobody answered where our Node said that it is says nothing
// about a Node that was made anew and tells of that place too: a machine that was away may have made it.
func TestWhoWasSilentIsAskedAboutAnotherNode(t *testing.T) {
	c := newTestCore(t)
	c.ours = &corev1.Node{ObjectMeta: peer("a", "10.244.1.0/24", "192.0.2.2").ObjectMeta}
	for c.otherMachine() != nil && c.namesake.asked < 10*namesakeRounds {
		c.namesake.answered(Answered{c.namesake.asked, false}, c.Now)
		c.Now = c.Now.Add(time.Minute)
	}
	if err := c.otherMachine(); err != nil {
		t.Fatalf("asked %d times: %v", c.namesake.asked, err)
	}
	c.ours.UID = "another"
	asked := c.namesake.asked
	if err := c.otherMachine(); err == nil || c.namesake.asked != asked+1 {
		t.Errorf("%v, asked %d times more", err, c.namesake.asked-asked)
	}
	c.namesake.answered(Answered{c.namesake.asked, true}, c.Now)
	if err := c.otherMachine(); err == nil {
		t.Error("a machine that answers is written over, since it was silent once")
	}
}

// TestNobodyIsWaitedForInVain: once it is known that nobody lives where our Node says that it is, no round is
// due, which would keep the loop turning. As long as our Node cannot be written it is asked again after a
// while, since whoever was away may be back.
func TestNobodyIsWaitedForInVain(t *testing.T) {
	c := newTestCore(t)
	c.ours = &corev1.Node{ObjectMeta: peer("a", "10.244.1.0/24", "192.0.2.2").ObjectMeta}
	for range 2*namesakeRounds + 1 {
		_ = c.otherMachine() // what it says meanwhile another test tells
		c.namesake.answered(Answered{c.namesake.asked, false}, c.Now)
		c.Now = c.Now.Add(2 * namesakeWait)
	}
	asked := c.namesake.asked
	if err := c.otherMachine(); err != nil || !c.namesake.due().After(c.Now) || asked != namesakeRounds {
		t.Errorf("%v; asked %d times, and the next round is due at %s", err, asked, c.namesake.due())
	}
	c.Now = c.namesake.due()
	if err := c.otherMachine(); err == nil || c.namesake.asked != asked+1 {
		t.Errorf("%v; asked %d times more", err, c.namesake.asked-asked)
	}
	c.namesake.answered(Answered{c.namesake.asked, true}, c.Now)
	if err := c.otherMachine(); err == nil {
		t.Error("a machine that is back is written over")
	}
}

// TestANodeWithoutAPodCIDRIsAnothersToo: nothing is written to it either before it is known whether that
// lives.
func TestANodeWithoutAPodCIDRIsAnothersToo(t *testing.T) {
	c := newTestCore(t)
	c.phase, c.Source, c.reporter.path = keeping, keeper.SourceStore, &DataPath{}
	c.ours = &corev1.Node{ObjectMeta: peer("a", "10.244.1.0/24", "192.0.2.2").ObjectMeta}
	c.reporter.broken = 0
	asked := 0
	for _, f := range c.Step(c.Now, news{}) {
		switch f := f.(type) {
		case keeper.AskUnderlay:
			asked++
		case PatchNode:
			t.Errorf("it is written: %s", f.patch.body())
		}
	}
	if st := c.status(); st.State != lease.Waiting || asked != 1 {
		t.Errorf("state %s, asked %d times", st.State, asked)
	}
}

// TestAnAddressOfAnotherNode: what our Node says is our former address, which the machine of another Node has
// by now. Nobody is asked there, since whoever answers is that one.
func TestAnAddressOfAnotherNode(t *testing.T) {
	for _, address := range []string{"192.0.2.2", "192.0.2.3"} {
		c := newTestCore(t)
		c.phase, c.Source = keeping, keeper.SourceStore
		c.ours = peer("a", "10.244.1.0/24", "192.0.2.2")
		other := c.keys.node(c.o.Config, peer("b", "10.244.2.0/24", address), 1)
		c.view = view{read: true, nodes: []*node{other}}
		asked, written := 0, 0
		for _, f := range c.Step(c.Now, news{}) {
			switch f.(type) {
			case keeper.AskUnderlay:
				asked++
			case PatchNode:
				written++
			}
		}
		if taken := address == "192.0.2.2"; asked == 0 != taken || written == 1 != taken {
			t.Errorf("%s is another's: asked %d times, %d writes", address, asked, written)
		}
	}
}

// newTestCore returns a core of the Node "a" at 192.0.2.1, which has somebody to ask.
func newTestCore(t testing.TB) *Life {
	o := Options{Options: keeper.Options{
		Node: "a", State: "s", RawConfig: []byte(v4Config), Underlay: &living{}, Rand: rand.New(rand.NewPCG(1, 2)),
		Local: keeper.Local{Attrs: attrs("192.0.2.1", `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`)},
	}}
	var err error
	if o.Config, err = lease.ParseNetworkConfig(o.RawConfig); err != nil {
		t.Fatal(err)
	}
	c, err := NewLife("", true, o, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	c.name = "a"
	return c
}
