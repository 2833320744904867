package sim

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// The numbers of seeds that a run plays unless WEFT_SEEDS says otherwise, and with which each turn of a
// node's life is expected to have met each other. A cluster whose store is the Kubernetes API takes ten times
// longer.
const (
	fewSeeds  = 300
	allMet    = 2000
	kubeShare = 10
)

// seedsPlayed returns how many seeds this run plays.
func seedsPlayed(t *testing.T) int {
	t.Helper()
	text := os.Getenv("WEFT_SEEDS")
	if text == "" {
		return fewSeeds
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < kubeShare {
		t.Fatalf("WEFT_SEEDS=%s: want a number of seeds, %d or more", text, kubeShare)
	}
	return n
}

// TestSimulatedSeeds plays clusters of many seeds: none breaks a rule, and all turns of a node's life meet
// each other.
func TestSimulatedSeeds(t *testing.T) {
	t.Parallel()
	seen, seeds := new(Seen), seedsPlayed(t)
	for seed := range uint64(seeds) {
		if r := Run(Generate(seed), false, seen); r.Fault != nil {
			small := Shrink(r.Fault)
			t.Fatalf("seed %d: %v\nshrunk:\n%s%s%s", seed, r.Fault, Run(small, true, new(Seen)).History, small,
				small.JSON())
		}
	}
	t.Logf("%d steps; what met what within %s:\n%s", seen.Steps, near, seen)
	if never, kinds := seen.Never(), seen.Without(etcdKinds()); seeds >= allMet && len(never)+len(kinds) > 0 {
		t.Errorf("never within %s: %q; never at all: %s", near, never, kinds)
	}
}

// TestSimulatedKube does the same with clusters whose store is the Kubernetes API.
func TestSimulatedKube(t *testing.T) {
	t.Parallel()
	seen, seeds := new(Seen), seedsPlayed(t)/kubeShare
	for seed := range uint64(seeds) {
		if r := Run(GenerateKube(seed), false, seen); r.Fault != nil {
			small := Shrink(r.Fault)
			t.Fatalf("seed %d: %v\nshrunk:\n%s%s%s", seed, r.Fault, Run(small, true, new(Seen)).History, small,
				small.JSON())
		}
	}
	t.Logf("%d steps; what met what within %s:\n%s", seen.Steps, near, seen)
	if never, kinds := seen.Never(), seen.Without(kubeKinds()); seeds >= allMet/kubeShare &&
		len(never)+len(kinds) > 0 {
		t.Errorf("never within %s: %q; never at all: %s", near, never, kinds)
	}
}

// TestSimulatedTwice wants the same history of a seed each time.
func TestSimulatedTwice(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		s := Generate(seed / 2)
		if seed%2 == 1 {
			s = GenerateKube(seed / 2)
		}
		first, again := Run(s, true, new(Seen)), Run(s, true, new(Seen))
		if first.History != again.History || first.History == "" {
			t.Errorf("seed %d: %d bytes of history, and %d", seed, len(first.History), len(again.History))
		}
	}
}

// TestSimulatedFinds plays the scripts that once broke a rule.
func TestSimulatedFinds(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/*.json")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	for _, path := range scripts {
		s, err := ReadScript(path)
		if err != nil {
			t.Fatal(err)
		}
		if f := Run(s, false, new(Seen)).Fault; f != nil {
			t.Errorf("%s: %v", path, f)
		}
	}
}
