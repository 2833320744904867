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

	between [2]int
	say     saying
}

// saying says what is wrong between two nodes that have these names.
type saying func(names [2]string) (found string, why diagnose.Finding)

// told returns t with what it says of nodes of these names.
func (t trouble) told(names [2]string) trouble {
	found, why := t.say(names)
	t.Found, t.Likely, t.Look, t.Causes = found, why.Likely(), why.Look(), why.Codes()
	return t
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
			before, ok := w[c.Node]
			if c.Node >= 0 && c.Node < len(m.Nodes) &&
				(!ok || cmp.Or(cmp.Compare(rank(c), rank(before)), cmp.Compare(c.RTT, before.RTT)) > 0) {
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
			say, known := r.pair(a, b)
			switch {
			case say != nil:
				r.Pairs.Trouble++
				if !gone[a] && !gone[b] {
					r.bad[a], r.bad[b] = true, true
					pairs = append(pairs, trouble{between: [2]int{a, b}, say: say})
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

// alike is how many pairs with one node have the same trouble for that to be one entry.
const alike = 4

// grouped tells the troubles of pairs, those that one node has with several others as one.
func (r *reading) grouped(pairs []trouble) (out []trouble) {
	times := map[int]int{}
	for _, t := range pairs {
		times[t.between[0]]++
		times[t.between[1]]++
	}
	type key struct {
		hub   int
		found string
	}
	same := map[key][]int{}
	keyOf := func(t trouble) (k key, hub int) { // hub is which of the two has more of them
		if times[t.between[1]] > times[t.between[0]] {
			hub = 1
		}
		names := [2]string{"its", "its"}
		names[hub] = "the hub"
		return key{t.between[hub], t.told(names).Found}, hub
	}
	for _, t := range pairs {
		k, hub := keyOf(t)
		same[k] = append(same[k], t.between[1-hub])
	}
	for _, t := range pairs {
		k, hub := keyOf(t)
		var others []string
		for _, i := range same[k] {
			others = append(others, r.name(i))
		}
		names := [2]string{r.name(t.between[0]), r.name(t.between[1])}
		switch {
		case len(others) == 0:
			continue // said
		case len(others) < alike:
			others = []string{names[1-hub]}
		default:
			same[k] = nil
			more := ""
			if len(others) > alike {
				more = ", …"
			}
			names[1-hub] = fmt.Sprintf("each of %d nodes (%s%s)", len(others), strings.Join(others[:alike], ", "),
				more)
		}
		t = t.told(names)
		t.Nodes = append([]string{r.name(t.between[hub])}, others...)
		out = append(out, t)
	}
	return out
}

// gone finds the nodes that answer nobody, and makes a trouble of each: one line in place of one for each
// pair. If this node is one of them, that nobody answers says nothing of the others.
func (r *reading) gone() (gone map[int]bool, troubles []trouble) {
	gone, troubles = map[int]bool{}, []trouble{}
	var alone []trouble
	for b, node := range r.Nodes {
		var said []control.MatrixCell // by the others, of this node by itself: nobody can have told
		for a := range r.Nodes {
			of, by := a, b
			if node.Self {
				of, by = b, a
			}
			if c, ok := r.worst[of][by]; ok && a != b {
				said = append(said, c)
			}
		}
		answers := slices.ContainsFunc(said, func(c control.MatrixCell) bool { return c.Answers != "no" })
		if answers || len(said) < 2 || !r.looksAt(b) {
			continue
		}
		gone[b], r.bad[b] = true, true
		t := trouble{Nodes: []string{r.name(b)}, say: func(n [2]string) (string, diagnose.Finding) {
			best := slices.MaxFunc(said, func(x, y control.MatrixCell) int { return telling(x) - telling(y) })
			return fmt.Sprintf("%s answers none of the %s that told of it", n[0], cli.Count(len(said), "node")),
				diagnose.Silence(diagnose.Path{Peer: n[0], Here: "on one of the others", Weft: true, Carried: true,
					Under: node.Address, UDPPort: r.Port}, best.Silence)
		}}
		if !node.Self {
			troubles = append(troubles, t.told([2]string{r.name(b)}))
			continue
		}
		t.say = func(n [2]string) (string, diagnose.Finding) {
			return fmt.Sprintf("this node, %s, gets an answer from none of its %d peers", n[0], len(said)),
				diagnose.Between(diagnose.Path{}, diagnose.Alone)
		}
		alone = append(alone, t.told([2]string{r.name(b)}))
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

// telling is how much a cell's word for silence says of the cause.
func telling(c control.MatrixCell) int {
	return slices.Index([]string{"", control.SilentUnsendable, control.SilentEverything, control.SilentUnderlay,
		control.SilentHeard, control.SilentKernel, control.SilentRefused}, c.Silence)
}

// name is what a node is called.
func (r *reading) name(i int) string {
	return cli.Clean(cmp.Or(r.Nodes[i].Name, r.Nodes[i].NodeID, "?"))
}

// whole reports whether a has told of all its peers.
func (r *reading) whole(a int) bool { return r.Full && r.Nodes[a].Tells == "yes" }

// pair returns what is wrong between two nodes, nil for nothing, and whether anything is known of them.
func (r *reading) pair(a, b int) (say saying, known bool) {
	ab, fromA := r.worst[a][b]
	ba, fromB := r.worst[b][a]
	from, to := 0, 1 // which of the names stand where
	turn := func(turned bool) {
		if turned {
			from, to = 1, 0
		}
	}
	switch {
	case ab.Answers == "no" || ba.Answers == "no":
		return r.silent(a, b, ab, ba), true
	case fromB && r.ignores(a, fromA), fromA && r.ignores(b, fromB):
		turn(fromA)
		return func(n [2]string) (string, diagnose.Finding) {
			return fmt.Sprintf("%s does not know %s", n[from], n[to]),
				diagnose.Between(diagnose.Path{Here: "on " + n[from]}, diagnose.Unseen)
		}, true
	case ab.Lossy || ba.Lossy:
		out, in := cli.Larger(ab.LossOut, ba.LossIn), cli.Larger(ab.LossIn, ba.LossOut)
		return func(n [2]string) (string, diagnose.Finding) {
			found := fmt.Sprintf("of packets from %s to %s %s are lost, from %s to %s %s", n[0], n[1],
				cli.Share(out), n[1], n[0], cli.Share(in))
			if both := cli.Larger(ab.Loss, ba.Loss); both != nil {
				found = fmt.Sprintf("between %s and %s %s are lost", n[0], n[1], cli.Share(both))
			}
			return found, diagnose.Of(r.path(n[0], n[1], a, b), diagnose.Fact{Layer: diagnose.DataPlane,
				State: diagnose.Lossy, Probed: true})
		}, true
	case ab.LargeLost || ba.LargeLost:
		passes := ab.PathMTU
		if passes == 0 || ba.LargeLost && ba.PathMTU > 0 && ba.PathMTU < passes {
			passes = ba.PathMTU
		}
		turn(!ab.LargeLost)
		return func(n [2]string) (string, diagnose.Finding) {
			ends := [2]int{a, b}
			return fmt.Sprintf("packets of %d bytes from %s reach %s, and larger ones are lost", passes, n[from],
					n[to]),
				diagnose.Between(r.path(n[from], n[to], ends[from], ends[to]), diagnose.LargeLost)
		}, true
	}
	return nil, ab.Answers == "yes" || ba.Answers == "yes" || !r.Full && (r.well(a) || r.well(b))
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

// silent says what is wrong between two nodes of which at least one says that the other does not answer.
func (r *reading) silent(a, b int, ab, ba control.MatrixCell) saying {
	noA, noB := ab.Answers == "no", ba.Answers == "no"
	turned, format := noB, "%s gets no answer from %s"
	oneWay, hears := ab.Answers == "yes" || ba.Answers == "yes", noA && noB && ab.Heard != ba.Heard
	switch {
	case hears:
		turned, format = ba.Heard, "%[2]s hears nothing from %[1]s, and %[1]s hears %[2]s"
	case noA && noB:
		turned, format = telling(ba) > telling(ab), "%s and %s do not answer each other"
	case oneWay:
		format = "%s gets no answer from %s, which gets answers from it"
	}
	from, to, ends, silence := 0, 1, [2]int{a, b}, ab.Silence
	if turned {
		from, to, silence = 1, 0, ba.Silence
	}
	if hears {
		silence = control.SilentHeard
	}
	return func(n [2]string) (string, diagnose.Finding) {
		found := fmt.Sprintf(format, n[from], n[to])
		if oneWay {
			return found, diagnose.Between(diagnose.Path{Peer: n[to]}, diagnose.OneWay)
		}
		return found, diagnose.Silence(r.path(n[from], n[to], ends[from], ends[to]), silence)
	}
}

// path is the way from one node to the other.
func (r *reading) path(here, peer string, from, to int) diagnose.Path {
	return diagnose.Path{
		Peer: peer, Here: "on " + here, Weft: true, Carried: true, Under: r.Nodes[to].Address,
		UnderFrom: r.Nodes[from].Address, UDPPort: r.Port,
	}
}
