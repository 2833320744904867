package hostrules

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// contested is a firewall that others write to right after our first writes.
type contested struct {
	counts  bool // it has a generation
	replace bool // apply writes everything anew, as with nftables; else only what differs
	foreign int  // after how many of our writes somebody else writes too

	gen     uint32
	own     int // how often ours was written
	theirs  bool
	applies int
}

func (*contested) name() string { return "contested" }

func (c *contested) inspect() (view, error) {
	if c.own == 0 {
		return view{}, nil
	}
	return view{own: fmt.Sprintf("ours %d, theirs %t", c.own, c.theirs)}, nil
}

func (c *contested) apply(context.Context, familyRules) (int, error) {
	c.applies++
	wrote := 0
	if c.replace || c.theirs || c.own == 0 {
		c.own, c.theirs, wrote = c.own+1, false, 1
		c.gen++
	}
	if c.foreign > 0 {
		c.foreign--
		c.theirs = true
		c.gen++
	}
	return wrote, nil
}

func (c *contested) generation() (uint32, error) {
	if !c.counts {
		return 0, nil
	}
	return c.gen, nil
}

// What others write right after us, before we inspect, is undone and not taken for ours.
func TestChangeBehindOurWriteIsSeen(t *testing.T) {
	for _, kind := range []struct {
		name            string
		counts, replace bool
		quiet           int // writes after which nobody else writes
	}{
		{"nftables", true, true, 1},
		{"iptables in nftables", true, false, 1},
		{"iptables legacy", false, false, 2},
	} {
		for foreign := range applyTries - 1 {
			t.Run(fmt.Sprintf("%s, followed by others %d times", kind.name, foreign), func(t *testing.T) {
				c := &contested{counts: kind.counts, replace: kind.replace, foreign: foreign}
				s := &side{firewall: c}
				want := familyRules{forward: []rule{{do: verdictAccept}}}
				changed, repaired, err := s.bring(t.Context(), view{}, want)
				if err != nil || !changed || repaired {
					t.Errorf("changed %t, repaired %t, %v", changed, repaired, err)
				}
				if c.theirs {
					t.Error("what others wrote is still there, and passes for ours")
				}
				if foreign == 0 && c.applies != kind.quiet {
					t.Errorf("%d applies, want %d", c.applies, kind.quiet)
				}
				v, _ := c.inspect()
				if changed, _, _ := s.bring(t.Context(), v, want); changed {
					t.Error("what is in place is written again")
				}
			})
		}
	}
}

// A host on which others never rest costs a bounded number of writes.
func TestRestlessHostIsNotFought(t *testing.T) {
	c := &contested{counts: true, replace: true, foreign: 1000}
	s := &side{firewall: c}
	want := familyRules{forward: []rule{{do: verdictAccept}}}
	if _, _, err := s.bring(t.Context(), view{}, want); err != nil || c.applies != applyTries {
		t.Errorf("%d applies, %v", c.applies, err)
	}
	// What they wrote last is not taken for ours: it is undone once they rest.
	c.foreign = 0
	v, _ := c.inspect()
	if _, _, err := s.bring(t.Context(), v, want); err != nil || c.theirs {
		t.Errorf("what others wrote stays: %v", err)
	}
	v, _ = c.inspect()
	if changed, _, _ := s.bring(t.Context(), v, want); changed {
		t.Error("what is in place is written again")
	}
}

// Rules outlive the process that made them, and with them their counters. What they had counted by then is not of this process.
func TestWhatWasDroppedBeforeIsNotCounted(t *testing.T) {
	var s side
	for _, x := range []struct{ counter, want uint64 }{{5, 0}, {7, 2}, {1, 2}, {4, 2 + 3}} { // in between the rules were made anew
		s.count(view{dropped: Dropped{Strangers: x.counter}})
		if s.dropped.Strangers != x.want {
			t.Errorf("at a counter of %d: %d, want %d", x.counter, s.dropped.Strangers, x.want)
		}
	}
}

// Nobody else writes: the kernel has counted as many transactions as we made.
func TestTransactionsAreCounted(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			r := testRules(t, f, testConfig(f))
			apply(t, r, testSet("198.51.100.1"))
			for _, s := range r.sides {
				if s.kind != f.kind || s.kind == kindIptablesLegacy {
					continue
				}
				before, err := s.generation()
				if err != nil {
					t.Fatal(err)
				}
				wrote, err := s.apply(t.Context(), familyRules{ipv6: s.ipv6})
				if err != nil || wrote == 0 {
					t.Fatalf("%d transactions, %v", wrote, err)
				}
				if after, err := s.generation(); err != nil || after-before != uint32(wrote) {
					t.Errorf("%s: %d transactions, and the kernel counted %d: %v", s.name(), wrote, after-before, err)
				}
			}
		})
	}
}

// waiting is a firewall whose apply waits for somebody else's lock.
type waiting struct {
	contested
	applies, goOn chan struct{}
}

func (w *waiting) apply(context.Context, familyRules) (int, error) {
	w.applies <- struct{}{}
	<-w.goOn
	return 0, nil
}

// Whether rules are there is known while iptables waits for its lock: the backend asks with its own lock held.
func TestPresentDoesNotWaitForIptables(t *testing.T) {
	inNamespace(t)
	r := testRules(t, flavours()[0], testConfig(flavours()[0]))
	w := &waiting{applies: make(chan struct{}), goOn: make(chan struct{})}
	w.own = 1 // of an earlier process
	r.sides = []*side{{firewall: w, kind: kindNFTables}}
	there := make(chan bool, 1)
	go func() { // not in the namespace, of which it needs nothing
		defer close(w.goOn)
		<-w.applies
		go func() { there <- r.Present() }()
		select {
		case p := <-there:
			if !p {
				t.Error("they are not there")
			}
		case <-time.After(10 * time.Second):
			t.Error("no answer while a change of the rules waits")
		}
	}()
	apply(t, r, testSet())
}
