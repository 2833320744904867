package tunnel

import (
	"math/rand/v2"
	"testing"
	"time"
)

// roundsOf has a peer asked until the check ends. arrives tells which datagrams of a round do.
func roundsOf(c *runCheck, s *peerState, now *int64, arrives func(datagram int) bool) (rounds int,
	broken bool) {
	for {
		*now += int64(runGap)
		token, broken := c.next(s, *now)
		if token == 0 {
			return rounds, broken
		}
		rounds++
		for k := range 2 * runLen {
			if arrives(k) {
				c.answered(s, token+uint64(k), runSize)
			}
		}
	}
}

func TestRunCheck(t *testing.T) {
	alone := func(k int) bool { return k >= runLen }
	for _, tt := range []struct {
		name    string
		arrives func(int) bool
		rounds  int
		broken  bool
	}{
		{"all", func(int) bool { return true }, 1, false},
		{"nothing of the run", alone, 2, true},
		{"half of the run", func(k int) bool { return alone(k) || k < 2 }, partMissing, true},
		{"the run without its last", func(k int) bool { return alone(k) || k < runLen-1 }, partMissing, true},
		{"nothing", func(int) bool { return false }, maxRounds, false},
		{"the run alone", func(k int) bool { return !alone(k) }, maxRounds, false},
		{"a part of both, as if answers had run out", func(k int) bool { return alone(k) && k < runLen+2 },
			maxRounds, false},
	} {
		var c runCheck
		now := int64(0)
		if rounds, broken := roundsOf(&c, new(peerState), &now, tt.arrives); rounds != tt.rounds ||
			broken != tt.broken {
			t.Errorf("%s: %d rounds, broken %v; want %d, %v", tt.name, rounds, broken, tt.rounds, tt.broken)
		}
	}
	// Where two of ten datagrams are lost by chance, runs do not pass for broken.
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var c runCheck
		now := int64(0)
		if _, broken := roundsOf(&c, new(peerState), &now, func(int) bool { return r.IntN(10) >= 2 }); broken {
			t.Error("losses pass for a fault")
		}
	}
}

// TestRunCheckAsks: each peer once an hour, one at a time, and anew after a doubt.
func TestRunCheckAsks(t *testing.T) {
	var c runCheck
	a, b := new(peerState), new(peerState)
	now := int64(0)
	asked := func(s *peerState, after time.Duration) bool {
		now += int64(after)
		token, _ := c.next(s, now)
		return token != 0
	}
	whole := func() {
		s := c.peer
		for k := range uint64(2 * runLen) {
			c.answered(s, c.token+k, runSize)
		}
	}
	for i, step := range []struct {
		of      *peerState
		after   time.Duration
		want    bool
		answers bool
	}{
		{a, runGap, true, true}, {a, runGap, false, false}, {b, 0, true, false}, {b, runGap - 1, false, false},
		{a, 1, false, false},
		{b, 0, true, true}, {a, runGap, false, false}, {a, runEvery, true, false}, {b, runGap, false, false},
		{b, runAway, true, false},
		{a, runGap, false, false}, {a, runAway, true, true},
	} {
		if got := asked(step.of, step.after); got != step.want {
			t.Fatalf("step %d: asked %v, want %v", i, got, step.want)
		}
		if step.answers {
			whole()
		}
	}
	for range 2 {
		if asked(a, runGap) {
			t.Error("a peer that has answered is asked again")
		}
	}
	c.invalidate(now)
	if !asked(a, runGap) {
		t.Error("a doubt has nobody asked")
	}
}

// TestRunCheckBelievesWhoWasAsked: an answer counts only if the peer that was asked sends it, with the token
// of the round and the length of a datagram.
func TestRunCheckBelievesWhoWasAsked(t *testing.T) {
	var c runCheck
	s := new(peerState)
	token, _ := c.next(s, int64(runGap))
	if c.answered(new(peerState), token, runSize) || c.answered(s, token+2*runLen, runSize) ||
		c.answered(s, token, runSize-1) {
		t.Error("another's answer, or one to no question, counts")
	}
	if again, _ := c.next(s, 2*int64(runGap)); again&runBits != 0 || again>>3 == token>>3 {
		t.Errorf("tokens %x and %x", token, again)
	}
	if c.answered(s, token, runSize) {
		t.Error("an answer to an earlier round counts")
	}
}
