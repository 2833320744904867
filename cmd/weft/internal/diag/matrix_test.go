package diag

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/test/golden"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

func TestMain(m *testing.M) {
	golden.Flag()
	os.Exit(m.Run())
}

// wellMatrix is n nodes, the first of which asks, that all reach each other.
func wellMatrix(n int) control.Matrix {
	m := control.Matrix{Full: true, Port: 8285, Took: 412 * time.Millisecond}
	for i := range n {
		x := control.MatrixNode{
			Name: fmt.Sprintf("node%d", i+1), NodeID: fmt.Sprintf("id%04d", i),
			Subnets: []netip.Prefix{prefix(fmt.Sprintf("10.42.%d.0/24", i))},
			Address: addr(fmt.Sprintf("192.0.2.%d", i%250+1)), Self: i == 0, Tells: "yes", Of: n - 1, Answering: n - 1,
		}
		for j := range n {
			if j != i {
				x.Seen = append(x.Seen, control.MatrixCell{
					Node: j, Name: fmt.Sprintf("node%d", j+1), Address: addr(fmt.Sprintf("10.42.%d.0", j)), By: "udp",
					Answers: "yes", For: 3600,
					RTT: int64(300_000 + 10_000*(i+j)), LossOut: new(float64), LossIn: new(float64), PathMTU: 1472,
					Heard: true,
				})
			}
		}
		m.Nodes = append(m.Nodes, x)
	}
	return m
}

// change changes what node a says of node b.
func change(m *control.Matrix, a, b int, to func(*control.MatrixCell)) {
	x := &m.Nodes[a]
	i := slices.IndexFunc(x.Seen, func(c control.MatrixCell) bool { return c.Node == b })
	before := x.Seen[i].Answers
	to(&x.Seen[i])
	if before == "yes" && x.Seen[i].Answers == "no" {
		x.Answering, x.Silent = x.Answering-1, x.Silent+1
	}
}

func silent(how string, heard bool) func(*control.MatrixCell) {
	return func(c *control.MatrixCell) {
		c.Answers, c.For, c.RTT, c.LossOut, c.LossIn, c.PathMTU, c.Heard, c.Silence = "no", 45, 0, nil, nil,
			0, heard, how
	}
}

func loses(out, in float64) func(*control.MatrixCell) {
	return func(c *control.MatrixCell) { c.LossOut, c.LossIn, c.Lossy = &out, &in, true }
}

// sickMatrix is nodes between which something of each kind is wrong: node3's host is gone, node4 runs
// flannel, node5 an old weft, node6 hears nothing from node2, node7 loses a part of what node8 sends, and
// large packets from node1, which asks; node8 does not know node6.
func sickMatrix() control.Matrix {
	m := wellMatrix(8)
	m.Nodes[7].Name = "a-node-with-a-very-long-name.example\x1b[2J"
	for i := range m.Nodes {
		if i != 2 {
			change(&m, i, 2, silent(control.SilentEverything, false))
		}
		if i != 3 {
			change(&m, i, 3, func(c *control.MatrixCell) {
				c.By, c.Loss, c.LossOut, c.LossIn = "icmp", c.LossOut,
					nil, nil
			})
		}
	}
	for i, why := range map[int]string{2: "it does not answer this node",
		3: "it runs flannel, which does not tell; its kernel is asked by ICMP",
		4: "it answers, but its version of weft does not tell"} {
		m.Nodes[i].Tells, m.Nodes[i].Reason, m.Nodes[i].Seen = "no", why, []control.MatrixCell{}
		m.Nodes[i].Of, m.Nodes[i].Answering, m.Nodes[i].Silent = 0, 0, 0
	}
	change(&m, 1, 5, silent(control.SilentHeard, true))
	change(&m, 5, 1, silent(control.SilentUnderlay, false))
	change(&m, 7, 6, loses(0.3, 0))
	change(&m, 6, 7, loses(0, 0.28))
	change(&m, 0, 6, func(c *control.MatrixCell) { c.LargeLost, c.PathMTU = true, 1372 })
	m.Nodes[7].Seen = slices.DeleteFunc(m.Nodes[7].Seen, func(c control.MatrixCell) bool { return c.Node == 5 })
	return m
}

func TestMatrixPrints(t *testing.T) {
	asked, err := json.MarshalIndent(sickMatrix(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "matrix-asked", asked) // the tests of the whole program answer it
	alone := wellMatrix(4)
	for b := 1; b < 4; b++ {
		change(&alone, 0, b, silent(control.SilentUnderlay, false))
		alone.Nodes[b].Tells, alone.Nodes[b].Reason, alone.Nodes[b].Seen = "no", "it does not answer this node", nil
	}
	many := wellMatrix(120)
	for a := range many.Nodes {
		if a%7 == 3 && a != 9 {
			change(&many, a, 9, silent(control.SilentUnderlay, false))
		}
	}
	for _, c := range []struct {
		name  string
		m     control.Matrix
		node  []string
		width int
	}{
		{"matrix", sickMatrix(), nil, 100}, {"matrix-narrow", sickMatrix(), nil, 40},
		{"matrix-well", wellMatrix(3), nil, 80}, {"matrix-node", sickMatrix(), []string{"node6"}, 80},
		{"matrix-alone", alone, nil, 80}, {"matrix-many", many, nil, 80}, {"matrix-many-wide", many, nil, 160},
		{"matrix-one", wellMatrix(1), nil, 80},
	} {
		only, err := pairsOf(c.m, c.node)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		r := read(c.m, only)
		if err := printMatrix(&out, r, len(c.node) > 0, c.width); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%s: a name controls the terminal", c.name)
		}
		if r.Reached != (c.name == "matrix-well" || c.name == "matrix-one") {
			t.Errorf("%s: reached is %t", c.name, r.Reached)
		}
		golden.Check(t, c.name, out.Bytes())
	}
}

// Each trouble of two nodes is one entry, with what is likely; what is well is none.
func TestMatrixReads(t *testing.T) {
	for name, c := range map[string]struct {
		do           func(m *control.Matrix)
		nodes, cause string // cause is the code of the first
	}{
		"both silent, underlay": {func(m *control.Matrix) {
			change(m, 1, 2, silent(control.SilentUnderlay, false))
			change(m, 2, 1, silent(control.SilentUnderlay, false))
		}, "node2 node3", "dropped"},
		"both silent, all": {func(m *control.Matrix) {
			change(m, 1, 2, silent(control.SilentEverything, false))
			change(m, 2, 1, silent(control.SilentEverything, false))
		}, "node2 node3", "host-down"},
		"cut one way": {func(m *control.Matrix) {
			change(m, 1, 2, silent(control.SilentKernel, false))
			change(m, 2, 1, silent(control.SilentHeard, true))
		}, "node2 node3", "dropped-one-way"},
		"one says no": {func(m *control.Matrix) { change(m, 1, 2, silent(control.SilentUnderlay, false)) },
			"node2 node3", "just-begun"},
		"cannot send": {func(m *control.Matrix) {
			change(m, 1, 2, silent(control.SilentUnsendable, false))
			m.Nodes[2].Tells, m.Nodes[2].Seen = "no", nil
		}, "node2 node3", "own-output"},
		"not running": {func(m *control.Matrix) {
			change(m, 1, 2, silent(control.SilentRefused, false))
			change(m, 0, 2, silent(control.SilentUnderlay, false))
			change(m, 3, 2, silent(control.SilentUnderlay, false))
			m.Nodes[2].Tells, m.Nodes[2].Seen = "no", nil
		}, "node3", "weftd-stopped"},
		"lossy by icmp": {func(m *control.Matrix) {
			change(m, 1, 2, func(c *control.MatrixCell) {
				f := 0.2
				c.Loss, c.LossOut, c.LossIn, c.Lossy = &f, nil,
					nil, true
			})
		}, "node2 node3", "link-drops"},
		"large lost back": {func(m *control.Matrix) {
			change(m, 2, 1, func(c *control.MatrixCell) { c.LargeLost, c.PathMTU = true, 1300 })
		}, "node2 node3", "path-mtu"},
		"one of two families": {func(m *control.Matrix) {
			x := m.Nodes[1].Seen[1]
			x.Address = addr("fd00:2::")
			silent(control.SilentUnderlay, false)(&x)
			m.Nodes[1].Seen = append(m.Nodes[1].Seen, x)
		}, "node2 node3", "just-begun"},
	} {
		m := wellMatrix(4)
		c.do(&m)
		r := read(m, func(int, int) bool { return true })
		if len(r.Troubles) != 1 || strings.Join(r.Troubles[0].Nodes, " ") != c.nodes ||
			r.Troubles[0].Likely == "" || r.Troubles[0].Look == "" || r.Troubles[0].Causes[0] != c.cause || r.Reached {
			t.Errorf("%s: %+v", name, r.Troubles)
		}
	}
	// Of two flannel nodes nobody tells, which is no trouble.
	m := wellMatrix(3)
	for _, i := range []int{1, 2} {
		m.Nodes[i].Tells, m.Nodes[i].Seen = "no", nil
	}
	if r := read(m, func(int, int) bool { return true }); !r.Reached ||
		r.Pairs != (pairCounts{All: 3, Well: 2, Unknown: 1}) {
		t.Errorf("flannel: %+v %+v", r.Pairs, r.Troubles)
	}
	// What points nowhere is passed over: the nodes are named by numbers that a daemon sent.
	m.Nodes[0].Seen = append(m.Nodes[0].Seen, control.MatrixCell{Node: 99}, control.MatrixCell{Node: -1})
	read(m, func(int, int) bool { return true })
}
