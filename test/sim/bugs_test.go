package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bug is a fault that is planted in a copy of the product's source: in a file, new in the place of old, which
// is there once.
type bug struct {
	name, file, old, new string
	// quick says that it is found in so few seeds that make test looks for it.
	quick bool
	// kube says that it is looked for in clusters whose store is the Kubernetes API.
	kube bool
}

// kubeBugs are those of lease/kube. Each is found in the first 300 seeds, from 0.
func kubeBugs() []bug {
	return []bug{
		{"who was away writes over who serves", "lease/kube/namesake.go",
			"if settled && (theirs.Weft == nil || theirs.Equal(n.said) || theirs.Equal(n.sent)) {", "if settled {",
			false, true},
		{"a watch goes on at a server that went back", "lease/kube/watch.go",
			"	switch {\n	case to != 0 && to < at:",
			"	switch {\n	case true:\n		return false\n	case to != 0 && to < at:", false, true},
		{"a namesake is silent at once", "lease/kube/namesake.go", "if n.rounds.Silent >= need && !gone {",
			"if n.rounds.Silent >= 0*need && !gone {", false, true},
		{"nobody has our Node's name", "lease/kube/namesake.go", "	return theirs, known\n",
			"	return theirs, known && false\n", false, true},
		{"a failed write is not waited for", "lease/kube/life.go", "	c.writer.retry = c.Now.Add(c.Backoff(",
			"	_ = c.Now.Add(c.Backoff(", false, true},
		{"what a list does not have stays", "lease/kube/nodes.go",
			"	s.byName, s.ours = make(map[string]*node, len(list)), nil", "	s.ours = nil", false, true},
		{"what others changed of ours stays", "lease/kube/patch.go", "case wanted && (!had || old != text):",
			"case wanted && (!had || old == \"?\"):", false, true},
		{"a condition is said again and again", "lease/kube/reporter.go", "	if now.Before(at) {\n		return at",
			"	if false {\n		return at", false, true},
	}
}

// bugs are the planted ones.
func bugs() []bug {
	return []bug{
		{"another cluster is believed", "lease/belief/believe.go", "case s.ClusterID != m.ClusterID:",
			"case false:",
			true, false},
		{"a store that went back is believed", "lease/belief/believe.go", "case s.Revision < m.Revision:",
			"case false:",
			false, false},
		{"a store without a configuration is believed", "lease/belief/believe.go",
			"	case s.Config == nil:\n		return \"the store has", "	case false:\n		return \"the store has",
			false, false},
		{"whoever is lost has been replaced", "lease/belief/believe.go",
			"return elsewhere || slices.ContainsFunc(p.fresh, r.Overlaps)", "return elsewhere || len(p.fresh) >= 0",
			false, false},
		{"who is kept ends at once", "lease/belief/believe.go",
			"return (p.Held || p.Leaving) && !now.Before(p.Until)",
			"return p.Held || p.Leaving", true, false},
		{"revisions of another store are compared", "lease/keeper/observe.go",
			"			st.wentBack = true\n			c.own.forgetRevision()", "			st.wentBack = true", false, false},
		{"a revision that is used again is ours", "lease/keeper/judge.go",
			"return h.cluster == s.ClusterID && s.Revision >= h.Revision &&", "return false &&",
			false, false},
		{"what is put back is not compared", "lease/keeper/work.go", "if h.V4.IsValid() && h.V6.IsValid() {",
			"if false {",
			false, false},
		{"who is left out may be forged", "tunnel/forged.go", "peer, found = t.leftOut.Lookup(src)", "found = false",
			false, false},
		{"what is gone is not put back", "lease/keeper/observe.go", `c.displaced(0, cluster, false, "is gone")`,
			"_ = cluster", true, false},
		{"the younger owner is silent", "lease/keeper/ask.go", "ours != 0 && q.Revision >= ours ||",
			"ours != 0 && q.Revision < ours ||", false, false},
		{"an answer is not heard", "lease/keeper/ask.go",
			"d.heard, d.rounds.Next = livesInStore, time.Time{} // which ends the round",
			"d.stirred = d.stirred || false", false, false},
		{"nobody is asked for long enough", "lease/keeper/ask.go", "case d.rounds.Silent < d.need:",
			"case d.rounds.Silent < 0:", false, false},
		{"another's record is written over", "lease/keeper/judge.go",
			"	case owns != lease.Ours:\n		return verdictTaken",
			"	case owns != lease.Ours:\n		return verdictRewrite", false, false},
		{"what was there first is not seen", "lease/keeper/work.go",
			"err := c.own.held.beaten(c.self(), s, c.own.tenure == tenureHeld)", "var err error", false, false},
		{"a copy at another address is us", "lease/owner.go", "return s.At(a) && (a.State()",
			"return true && (a.State()", false, false},
		{"renewals come too late", "lease/keeper/pace.go", "expires.Add(-margin - draw(",
			"expires.Add(margin - draw(",
			false, false},
		{"the address that we say is not written", "lease/keeper/tenure.go", " || !o.written.Equal(a))", ")",
			false, false},
		{"the time of a lease never ends", "lease/keeper/tenure.go",
			"return o.held != nil && !o.held.Reservation && !now.Before(o.held.Expires)", "return false",
			false, false},
		{"an answer of another call counts", "lease/keeper/core.go",
			"if c.continuation == nil || r.Number != c.calls {",
			"if c.continuation == nil {", false, false},
		{"failures are not waited for", "lease/keeper/outcome.go", "	c.failing++\n	c.retry = c.Now.Add(c.Backoff(",
			"	c.failing++\n	_ = c.Now.Add(c.Backoff(", false, false},
		{"what is written over is compared with what was", "lease/keeper/write.go",
			"return WriteRecord{h.Subnets, w.attrs, w.ttl, h.at}, w",
			"return WriteRecord{h.Subnets, w.attrs, w.ttl, h.Revision}, w", false, false},
		{"a peer may have our subnet", "lease/belief/check.go", "if s.Overlaps(u.Own) {", "if false {",
			false, false},
		{"two peers may have one subnet", "lease/belief/accepted.go", "if q, hit := e.subnets.overlap(p); hit {",
			"if q, hit := e.subnets.overlap(p); hit && false {", false, false},
		{"the revision of a store that is not heard yet is asked with", "lease/keeper/putback.go",
			"if h.cluster != cluster {", "if false {", false, false},
		{"a host may send with a peer's addresses", "tunnel/egress.go", "case w.source.forged != nil && (",
			"case w.source.forged != nil && false && (", false, false},
		{"a peer may send with another's addresses", "tunnel/ingress.go",
			"t.spec.Check == CheckStrict && !peer.mayUse(", "t.spec.Check == CheckOff && !peer.mayUse(",
			false, false},
		{"what is not ours is delivered", "tunnel/ingress.go", "if !t.local.Lookup(in.Dst) {", "if false {",
			false, false},
		{"a drop is not counted", "tunnel/deliver.go", "w.flow.Drops[r] += uint64(p.Segments)",
			"w.flow.Drops[r] += uint64(p.Segments) / 2", false, false},
		{"packets overtake each other", "tunnel/deliver.go",
			"	w.out = append(w.out, p)\n	w.sends = append(w.sends, s)\n",
			"	w.out, w.sends = append([]*port.Packet{p}, w.out...), append([]send{s}, w.sends...)\n", false, false},
		{"a peer keeps the subnet that it had", "tunnel/table.go", "if p.sources[i] != n.Masked() {",
			"if i < 0 && p.sources[i] != n.Masked() {", false, false},
		{"a peer that is gone keeps its address", "routing/ways.go",
			"	var order []*way\n",
			"	if d.claims = s.claims; len(d.claims) > 0 {\n		return\n	}\n	var order []*way\n", false, false},
		{"a subnet that is taken is free", "lease/keeper/alloc.go",
			"free := f.Free(q.taken(f.Network.Addr()), firstFree)",
			"free := f.Free(nil, firstFree)", false, false},
	}
}

// bugSeeds is how many seeds there are to find a planted bug, and quickSeeds how many a quick one takes at
// the most.
const bugSeeds, quickSeeds = 100_000, 2000

// TestSimulatedBugs plants bugs in copies of the source, one at a time, and wants each found. WEFT_LONG=1
// looks for all of them; else only for the quick ones, but it is seen of all whether they still fit the
// source.
func TestSimulatedBugs(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range append(bugs(), kubeBugs()...) {
		source, err := os.ReadFile(filepath.Join(root, b.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), b.old); n != 1 {
			t.Errorf("%s: %s has %q %d times", b.name, b.file, b.old, n)
			continue
		}
		seeds := bugSeeds
		if os.Getenv("WEFT_LONG") == "" {
			if !b.quick {
				continue
			}
			seeds = quickSeeds
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			changed, overlay, program := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json"),
				filepath.Join(dir, "simulate")
			replace, err := json.Marshal(map[string]map[string]string{
				"Replace": {filepath.Join(root, b.file): changed}})
			if err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{changed: strings.Replace(string(source), b.old, b.new, 1),
				overlay: string(replace)} {
				if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay,
				"-ldflags=-w", "-o", program, "./test/cmd/simulate")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			out, err := exec.CommandContext(t.Context(), program, "-short", fmt.Sprintf("-kube=%t", b.kube), "-seeds",
				fmt.Sprint(seeds)).CombinedOutput()
			if err == nil || !strings.HasPrefix(string(out), "seed ") && !strings.Contains(string(out), "\nseed ") {
				t.Fatalf("not found in %d seeds: %v %s", seeds, err, out)
			}
			t.Logf("%.300s", out)
		})
	}
}
