package diag

import (
	"cmp"
	"fmt"
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
	Reached bool                `json:"reached"`
	worst   []map[int]cell      // by node, of the other
	bad     map[int]bool        // nodes that are in trouble
	only    func(a, b int) bool // the pairs that are looked at
}

// cell is the worst that one node says of another's addresses.
type cell struct{ control.MatrixCell }

// rank orders cells, the worst last.
func (c cell) rank() int {
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
	r := &reading{Matrix: m, Troubles: []trouble{}, bad: map[int]bool{}, only: only}
	for _, n := range m.Nodes {
		w := map[int]cell{}
		for _, s := range n.Seen {
			if s.Node < 0 || s.Node >= len(m.Nodes) {
				continue
			}
			c := cell{s}
			if before, ok := w[s.Node]; !ok || c.rank() > before.rank() || c.rank() == before.rank() &&
				c.RTT > before.RTT {
				w[s.Node] = c
			}
		}
		r.worst = append(r.worst, w)
	}
	gone := r.gone()
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
					r.Troubles = append(r.Troubles, *t)
				}
			case known:
				r.Pairs.Well++
			default:
				r.Pairs.Unknown++
			}
		}
	}
	r.Reached = r.Pairs.Trouble == 0
	r.Troubles = r.grouped()
	return r
}

// first and second stand for the names of the two nodes in a trouble's sentences, until it is known whether
// others have the same.
const first, second = "\x01", "\x02"

// alike is how many pairs with one node have the same trouble for that to be one entry.
const alike = 4

// grouped returns the troubles with names in them, those that one node has with several others as one.
func (r *reading) grouped() []trouble {
	times := map[int]int{}
	for _, t := range r.Troubles {
		if t.at[0] != t.at[1] {
			times[t.at[0]]++
			times[t.at[1]]++
		}
	}
	type key struct {
		hub   int
		found string
	}
	keyOf := func(t trouble) (k key, other int) {
		k, other = key{t.at[0], t.Found}, t.at[1]
		if times[t.at[1]] > times[t.at[0]] {
			swap := strings.NewReplacer(first, second, second, first)
			k, other = key{t.at[1], swap.Replace(t.Found)}, t.at[0]
		}
		return k, other
	}
	same := map[key][]string{}
	for _, t := range r.Troubles {
		if t.at[0] != t.at[1] {
			k, other := keyOf(t)
			same[k] = append(same[k], r.name(other))
		}
	}
	out := []trouble{}
	for _, t := range r.Troubles {
		if t.at[0] == t.at[1] {
			out = append(out, t)
			continue
		}
		k, other := keyOf(t)
		others, hub := same[k], r.name(k.hub)
		if others == nil {
			continue // said
		}
		t.Nodes = []string{hub, r.name(other)}
		who := r.name(other)
		if len(others) >= alike {
			same[k] = nil
			t.Nodes = append([]string{hub}, others...)
			who = fmt.Sprintf("each of %d nodes (%s", len(others),
				strings.Join(others[:min(alike, len(others))], ", "))
			if len(others) > alike {
				who += ", …"
			}
			who += ")"
		}
		names := []string{first, hub, second, who}
		if t.at[0] != k.hub {
			names = []string{second, hub, first, who}
		}
		fill := strings.NewReplacer(names...)
		t.Found, t.Likely, t.Look = fill.Replace(t.Found), fill.Replace(t.Likely), fill.Replace(t.Look)
		out = append(out, t)
	}
	return out
}

// gone finds the nodes that answer nobody, and adds a trouble for each: one line in place of one for each
// pair.
func (r *reading) gone() map[int]bool {
	out := map[int]bool{}
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
				best = c.MatrixCell
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
		if no < 2 || no < others || !slices.ContainsFunc(r.others(b), func(a int) bool {
			return r.only(min(a, b), max(a, b))
		}) {
			continue
		}
		out[b], r.bad[b] = true, true
		t := trouble{Nodes: []string{r.name(b)}, at: [2]int{b, b}}
		if self {
			t.Found = fmt.Sprintf("this node, %s, gets an answer from none of its %d peers", r.name(b), no)
			t.take(diagnose.Between(diagnose.Path{}, diagnose.Alone))
		} else {
			t.Found = fmt.Sprintf("%s answers none of the %s", r.name(b),
				cli.Count(no, "node")+" that told of it")
			if no == 1 {
				t.Found = fmt.Sprintf("%s does not answer", r.name(b))
			}
			t.take(diagnose.Silence(r.path("one of the others", r.name(b), -1, b), best.Silence))
		}
		r.Troubles = append(r.Troubles, t)
	}
	if self := slices.IndexFunc(r.Nodes, func(n control.MatrixNode) bool { return n.Self }); self >= 0 &&
		out[self] {
		// That nobody answers says nothing of the others.
		r.Troubles = slices.DeleteFunc(r.Troubles, func(t trouble) bool { return t.at != [2]int{self, self} })
	}
	return out
}

func (r *reading) others(b int) (out []int) {
	for a := range r.Nodes {
		if a != b {
			out = append(out, a)
		}
	}
	return out
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

// says returns what a says of b. ok is false if it told nothing of it.
func (r *reading) says(a, b int) (cell, bool) { c, ok := r.worst[a][b]; return c, ok }

// whole reports whether a has told of all its peers.
func (r *reading) whole(a int) bool { return r.Full && r.Nodes[a].Tells == "yes" }

// pair returns what is wrong between two nodes, and whether anything is known of them.
func (r *reading) pair(a, b int) (t *trouble, known bool) {
	ab, fromA := r.says(a, b)
	ba, fromB := r.says(b, a)
	t = &trouble{at: [2]int{a, b}}
	const A, B = first, second
	switch {
	case fromA && ab.Answers == "no" || fromB && ba.Answers == "no":
		r.silent(t, ab, ba, fromA, fromB)
	case !fromA && r.whole(a) && r.Nodes[a].Of > 0 && fromB && !r.Nodes[a].Self:
		r.unknownTo(t, A, B)
	case !fromB && r.whole(b) && r.Nodes[b].Of > 0 && fromA && !r.Nodes[b].Self:
		r.unknownTo(t, B, A)
	case ab.Lossy || ba.Lossy:
		out, in := cli.Larger(ab.LossOut, ba.LossIn), cli.Larger(ab.LossIn, ba.LossOut)
		t.Found = fmt.Sprintf("of packets from %s to %s %s are lost, from %s to %s %s", A, B, cli.Share(out),
			B,
			A, cli.Share(in))
		if both := cli.Larger(ab.Loss, ba.Loss); both != nil {
			t.Found = fmt.Sprintf("between %s and %s %s are lost", A, B, cli.Share(both))
		}
		t.take(diagnose.Of(r.path(A, B, a, b), diagnose.Fact{Layer: diagnose.DataPlane, State: diagnose.Lossy,
			Probed: true}))
	case ab.LargeLost || ba.LargeLost:
		passes := ab.PathMTU
		if passes == 0 || ba.LargeLost && ba.PathMTU > 0 && ba.PathMTU < passes {
			passes = ba.PathMTU
		}
		from, to, at, node := A, B, a, b
		if !ab.LargeLost {
			from, to, at, node = B, A, b, a
		}
		t.Found = fmt.Sprintf("packets of %d bytes from %s reach %s, and larger ones are lost", passes, from, to)
		t.take(diagnose.Between(r.path(from, to, at, node), diagnose.LargeLost))
	case fromA && ab.Answers == "yes" || fromB && ba.Answers == "yes" || !r.Full && (r.well(a) || r.well(b)):
		return nil, true
	default:
		return nil, false
	}
	return t, true
}

// well reports whether a node that was asked only for what is not well has told of all that.
func (r *reading) well(a int) bool {
	return r.Nodes[a].Tells == "yes" && r.Nodes[a].Answering == r.Nodes[a].Of
}

func (r *reading) unknownTo(t *trouble, a, b string) {
	t.Found = fmt.Sprintf("%s does not know %s", a, b)
	t.take(diagnose.Between(diagnose.Path{Here: "on " + a}, diagnose.Unseen))
}

// silent fills in t for two nodes of which at least one says that the other does not answer.
func (r *reading) silent(t *trouble, ab, ba cell, fromA, fromB bool) {
	a, b := t.at[0], t.at[1]
	const A, B = first, second
	noA, noB := fromA && ab.Answers == "no", fromB && ba.Answers == "no"
	switch {
	case noA && noB && ab.Heard != ba.Heard:
		from, to := A, B // what is lost
		if ba.Heard {
			from, to = B, A
		}
		t.Found = fmt.Sprintf("%s hears nothing from %s, and %s hears %s", to, from, from, to)
		at, node := a, b // from is at
		if ba.Heard {
			at, node = b, a
		}
		t.take(diagnose.Silence(r.path(from, to, at, node), control.SilentHeard))
	case noA && noB:
		t.Found = fmt.Sprintf("%s and %s do not answer each other", A, B)
		worst, from, to, node := ab, A, B, b
		if telling(ba.Silence) > telling(ab.Silence) {
			worst, from, to, node = ba, B, A, a
		}
		t.take(diagnose.Silence(r.path(from, to, a+b-node, node), worst.Silence))
	case noA && fromB && ba.Answers == "yes" || noB && fromA && ab.Answers == "yes":
		from, to := A, B
		if noB {
			from, to = B, A
		}
		t.Found = fmt.Sprintf("%s gets no answer from %s, which gets answers from it", from, to)
		t.take(diagnose.Between(diagnose.Path{Peer: to}, diagnose.OneWay))
	default:
		c, from, to, node := ab, A, B, b
		if !noA {
			c, from, to, node = ba, B, A, a
		}
		t.Found = fmt.Sprintf("%s gets no answer from %s", from, to)
		t.take(diagnose.Silence(r.path(from, to, a+b-node, node), c.Silence))
	}
}

// path is the way from one node to another. at is the one that asked; -1 for several.
func (r *reading) path(from, to string, at, node int) diagnose.Path {
	w := diagnose.Path{
		Peer: to, Here: "on " + from, Weft: true, Carried: true, Under: r.Nodes[node].Address, UDPPort: r.Port,
	}
	if at >= 0 {
		w.UnderFrom = r.Nodes[at].Address
	}
	return w
}

// take fills in what follows from a finding.
func (t *trouble) take(f diagnose.Finding) {
	t.Likely, t.Look, t.Causes = f.Likely(), f.Look(), f.Codes()
}
