package diag

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/weft/internal/cli"
)

// trouble is what is wrong between two nodes, or with one of them.
type trouble struct {
	// Nodes are the two, or one that answers nobody, or one that has the same trouble with all the others that
	// follow.
	Nodes []string `json:"nodes"`
	// Found is what is so; Likely the cause or those that are not excluded, and Look what tells.
	Found  string `json:"found"`
	Likely string `json:"likely,omitempty"`
	Look   string `json:"look,omitempty"`
	// Causes are the codes of the causes in Likely, as package diagnose has them.
	Causes []string `json:"causes,omitempty"`
	at     [2]int
}

// pairCounts counts pairs of nodes.
type pairCounts struct {
	All     int `json:"all"`
	Well    int `json:"well"`
	Trouble int `json:"trouble"`
	// Unknown are those of which no node told anything that says whether they reach each other.
	Unknown int `json:"unknown"`
}

// reading is what is made of a matrix.
type reading struct {
	control.Matrix
	Pairs    pairCounts `json:"pairs"`
	Troubles []trouble  `json:"troubles"`
	// Reached says that of no pair it is known that something does not reach the other.
	Reached bool `json:"reached"`
	// worst is the worst that each node says of another's addresses.
	worst []map[int]control.MatrixCell
	bad   map[int]bool        // nodes that are in trouble
	only  func(a, b int) bool // the pairs that are looked at
}

// rank orders cells, the worst last.
func rank(c control.MatrixCell) int {
	switch {
	case c.Answers == "no":
		return 4
	case c.LargeLost:
		return 3
	case c.Lossy:
		return 2
	case c.Answers != "yes":
		return 1
	}
	return 0
}

// read finds what is wrong between the pairs that only wants.
func read(m control.Matrix, only func(a, b int) bool) *reading {
	r := &reading{Matrix: m, bad: map[int]bool{}, only: only}
	for _, n := range m.Nodes {
		w := map[int]control.MatrixCell{}
		for _, c := range n.Seen {
			if c.Node < 0 || c.Node >= len(m.Nodes) {
				continue
			}
			before, ok := w[c.Node]
			if !ok || rank(c) > rank(before) || rank(c) == rank(before) && c.RTT > before.RTT {
				w[c.Node] = c
			}
		}
		r.worst = append(r.worst, w)
	}
	gone, troubles := r.gone()
	var pairs []trouble
	for a := range m.Nodes {
		for b := a + 1; b < len(m.Nodes); b++ {
			if !only(a, b) {
				continue
			}
			r.Pairs.All++
			t, known := r.pair(a, b)
			switch {
			case t != nil:
				r.Pairs.Trouble++
				if !gone[a] && !gone[b] {
					r.bad[a], r.bad[b] = true, true
					pairs = append(pairs, *t)
				}
			case known:
				r.Pairs.Well++
			default:
				r.Pairs.Unknown++
			}
		}
	}
	r.Reached = r.Pairs.Trouble == 0
	r.Troubles = append(troubles, r.grouped(pairs)...)
	return r
}

// first and second stand for the names of the two nodes in a trouble's sentences, until it is known whether
// others have the same.
const first, second = "\x01", "\x02"

// alike is how many pairs with one node have the same trouble for that to be one entry.
const alike = 4

// mark stands for the name of one of the two.
func (t *trouble) mark(node int) string {
	if node == t.at[0] {
		return first
	}
	return second
}

func (t *trouble) replace(words ...string) {
	r := strings.NewReplacer(words...)
	t.Found, t.Likely, t.Look = r.Replace(t.Found), r.Replace(t.Likely), r.Replace(t.Look)
}

// grouped returns the troubles of pairs with names in them, those that one node has with several others as
// one.
func (r *reading) grouped(pairs []trouble) (out []trouble) {
	times := map[int]int{}
	for _, t := range pairs {
		times[t.at[0]]++
		times[t.at[1]]++
	}
	type key struct {
		hub   int
		found string
	}
	same := map[key][]string{}
	for i := range pairs {
		t := &pairs[i]
		if times[t.at[1]] > times[t.at[0]] { // the node with more of them comes first
			t.at[0], t.at[1] = t.at[1], t.at[0]
			t.replace(first, second, second, first)
		}
		k := key{t.at[0], t.Found}
		same[k] = append(same[k], r.name(t.at[1]))
	}
	for _, t := range pairs {
		k, hub, who := key{t.at[0], t.Found}, r.name(t.at[0]), r.name(t.at[1])
		others := same[k]
		if others == nil {
			continue // said
		}
		t.Nodes = []string{hub, who}
		if len(others) >= alike {
			same[k] = nil
			t.Nodes = append([]string{hub}, others...)
			who = fmt.Sprintf("each of %d nodes (%s", len(others), strings.Join(others[:alike], ", "))
			if len(others) > alike {
				who += ", …"
			}
			who += ")"
		}
		t.replace(first, hub, second, who)
		out = append(out, t)
	}
	return out
}

// gone finds the nodes that answer nobody, and makes a trouble of each: one line in place of one for each
// pair. If this node is one of them, that nobody answers says nothing of the others.
func (r *reading) gone() (gone map[int]bool, troubles []trouble) {
	gone, troubles = map[int]bool{}, []trouble{}
	var alone []trouble
	for b := range r.Nodes {
		no, others := 0, 0
		var best control.MatrixCell
		for a := range r.Nodes {
			c, ok := r.worst[a][b]
			if a == b || !ok {
				continue
			}
			if others++; c.Answers != "no" {
				continue
			}
			if no++; no == 1 || telling(c.Silence) > telling(best.Silence) {
				best = c
			}
		}
		self := r.Nodes[b].Self
		if self { // nobody can have told
			for _, c := range r.worst[b] {
				if others++; c.Answers == "no" {
					no++
				}
			}
		}
		if no < 2 || no < others || !r.looksAt(b) {
			continue
		}
		gone[b], r.bad[b] = true, true
		t := trouble{Nodes: []string{r.name(b)}, at: [2]int{b, b}}
		if self {
			t.Found = fmt.Sprintf("this node, %s, gets an answer from none of its %d peers", r.name(b), no)
			t.take(diagnose.Between(diagnose.Path{}, diagnose.Alone))
			alone = append(alone, t)
			continue
		}
		t.Found = fmt.Sprintf("%s answers none of the %s that told of it", r.name(b), cli.Count(no, "node"))
		w := r.path(&t, b, b)
		w.Peer, w.Here, w.UnderFrom = r.name(b), "on one of the others", netip.Addr{}
		t.take(diagnose.Silence(w, best.Silence))
		troubles = append(troubles, t)
	}
	if alone != nil {
		return gone, alone
	}
	return gone, troubles
}

// looksAt reports whether a pair with the node is looked at.
func (r *reading) looksAt(node int) bool {
	for other := range r.Nodes {
		if other != node && r.only(min(other, node), max(other, node)) {
			return true
		}
	}
	return false
}

// telling is how much a word for silence says of the cause.
func telling(silence string) int {
	return slices.Index([]string{"", control.SilentUnsendable, control.SilentEverything, control.SilentUnderlay,
		control.SilentHeard, control.SilentKernel, control.SilentRefused}, silence)
}

// name is what a node is called.
func (r *reading) name(i int) string {
	return cli.Clean(cmp.Or(r.Nodes[i].Name, r.Nodes[i].NodeID, "?"))
}

// whole reports whether a has told of all its peers.
func (r *reading) whole(a int) bool { return r.Full && r.Nodes[a].Tells == "yes" }

// pair returns what is wrong between two nodes, and whether anything is known of them.
func (r *reading) pair(a, b int) (t *trouble, known bool) {
	ab, fromA := r.worst[a][b]
	ba, fromB := r.worst[b][a]
	t = &trouble{at: [2]int{a, b}}
	from, to := a, b
	switch {
	case ab.Answers == "no" || ba.Answers == "no":
		r.silent(t, ab, ba)
	case fromB && r.ignores(a, fromA), fromA && r.ignores(b, fromB):
		if fromA {
			from, to = b, a
		}
		t.Found = fmt.Sprintf("%s does not know %s", t.mark(from), t.mark(to))
		t.take(diagnose.Between(diagnose.Path{Here: "on " + t.mark(from)}, diagnose.Unseen))
	case ab.Lossy || ba.Lossy:
		out, in := cli.Larger(ab.LossOut, ba.LossIn), cli.Larger(ab.LossIn, ba.LossOut)
		t.Found = fmt.Sprintf("of packets from %s to %s %s are lost, from %s to %s %s", first, second,
			cli.Share(out), second, first, cli.Share(in))
		if both := cli.Larger(ab.Loss, ba.Loss); both != nil {
			t.Found = fmt.Sprintf("between %s and %s %s are lost", first, second, cli.Share(both))
		}
		t.take(diagnose.Of(r.path(t, a, b), diagnose.Fact{Layer: diagnose.DataPlane, State: diagnose.Lossy,
			Probed: true}))
	case ab.LargeLost || ba.LargeLost:
		passes := ab.PathMTU
		if passes == 0 || ba.LargeLost && ba.PathMTU > 0 && ba.PathMTU < passes {
			passes = ba.PathMTU
		}
		if !ab.LargeLost {
			from, to = b, a
		}
		t.Found = fmt.Sprintf("packets of %d bytes from %s reach %s, and larger ones are lost", passes,
			t.mark(from), t.mark(to))
		t.take(diagnose.Between(r.path(t, from, to), diagnose.LargeLost))
	default:
		return nil, ab.Answers == "yes" || ba.Answers == "yes" || !r.Full && (r.well(a) || r.well(b))
	}
	return t, true
}

// ignores reports whether a node that has told of all its peers did not tell of one.
func (r *reading) ignores(node int, told bool) bool {
	n := r.Nodes[node]
	return !told && r.whole(node) && n.Of > 0 && !n.Self
}

// well reports whether a node that was asked only for what is not well has told of all that.
func (r *reading) well(a int) bool {
	return r.Nodes[a].Tells == "yes" && r.Nodes[a].Answering == r.Nodes[a].Of
}

// silent fills in t for two nodes of which at least one says that the other does not answer.
func (r *reading) silent(t *trouble, ab, ba control.MatrixCell) {
	from, to, silence := t.at[0], t.at[1], ab.Silence
	turn := func() { from, to, silence = to, from, ba.Silence }
	noA, noB := ab.Answers == "no", ba.Answers == "no"
	switch {
	case noA && noB && ab.Heard != ba.Heard:
		if ba.Heard {
			turn()
		}
		silence = control.SilentHeard
		t.Found = fmt.Sprintf("%s hears nothing from %s, and %s hears %s", t.mark(to), t.mark(from), t.mark(from),
			t.mark(to))
	case noA && noB:
		if telling(ba.Silence) > telling(ab.Silence) {
			turn()
		}
		t.Found = fmt.Sprintf("%s and %s do not answer each other", first, second)
	case ab.Answers == "yes" || ba.Answers == "yes":
		if noB {
			turn()
		}
		t.Found = fmt.Sprintf("%s gets no answer from %s, which gets answers from it", t.mark(from), t.mark(to))
		t.take(diagnose.Between(diagnose.Path{Peer: t.mark(to)}, diagnose.OneWay))
		return
	default:
		if noB {
			turn()
		}
		t.Found = fmt.Sprintf("%s gets no answer from %s", t.mark(from), t.mark(to))
	}
	t.take(diagnose.Silence(r.path(t, from, to), silence))
}

// path is the way from one of t's nodes to the other.
func (r *reading) path(t *trouble, from, to int) diagnose.Path {
	return diagnose.Path{
		Peer: t.mark(to), Here: "on " + t.mark(from), Weft: true, Carried: true, Under: r.Nodes[to].Address,
		UnderFrom: r.Nodes[from].Address, UDPPort: r.Port,
	}
}

// take fills in what follows from a finding.
func (t *trouble) take(f diagnose.Finding) {
	t.Likely, t.Look, t.Causes = f.Likely(), f.Look(), f.Codes()
}
