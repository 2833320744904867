package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// probeSeen is what weft peers --json says of an address of a peer.
type probeSeen struct {
	By                    string
	Answers, Likely, Look string
	RTT                   int64 `json:"rttNanoseconds"`
	LossOut               *float64
	Lossy, LargeLost      bool
	PathMTU               int `json:"innerPathMTU"`
}

type probesSeen struct {
	Peers []struct {
		Name   string
		Probes []probeSeen
	}
}

// answering waits until every node's probes have had answers from every other node, by each family, with
// packets of mtu bytes.
func answering(t *testing.T, l *lab.Lab, families []int, mtu int) {
	t.Helper()
	for _, n := range l.Nodes() {
		await.Within(t, await.Timers, n.Name+"'s peers answer", func() error {
			answer, err := ask[probesSeen](t.Context(), n, "peers")
			if err == nil && len(answer.Peers) != len(l.Nodes())-1 {
				err = fmt.Errorf("%d peers", len(answer.Peers))
			}
			for _, p := range answer.Peers {
				if len(p.Probes) != len(families) {
					err = fmt.Errorf("%s: probes %+v, want %d", p.Name, p.Probes, len(families))
				}
				for _, a := range p.Probes {
					if a.Answers != "yes" || a.By != "udp" || a.RTT <= 0 || a.Lossy || a.LargeLost || a.PathMTU != mtu ||
						a.Likely != "" {
						err = fmt.Errorf("%s: %+v, want a path MTU of %d", p.Name, a, mtu)
					}
				}
			}
			return err
		})
	}
	await.Within(t, await.Timers, "the matrix of "+l.Node(1).Name, func() error {
		// a node that has no time for an answer is said to be late
		m, status, err := matrixOf(t, l.Node(1))
		if err == nil && (!m.Reached || status != 0 || len(m.Nodes) != len(l.Nodes()) || len(m.Troubles) > 0 ||
			m.Pairs.Well != m.Pairs.All) {
			err = fmt.Errorf("exit status %d, %+v", status, m)
		}
		for _, n := range m.Nodes {
			if n.Tells != "yes" || n.Of != len(families)*(len(l.Nodes())-1) || n.Answering != n.Of {
				err = errors.Join(err, fmt.Errorf("the matrix has %+v", n))
			}
		}
		return err
	})
}

// matrixSeen is what weft matrix --json says.
type matrixSeen struct {
	Nodes []struct {
		Name, Tells, Reason   string
		Of, Answering, Silent int
	}
	Pairs    struct{ All, Well, Trouble, Unknown int }
	Troubles []troubleSeen
	Reached  bool
}

type troubleSeen struct {
	Nodes               []string
	Found, Likely, Look string
}

// matrixOf has n ask all nodes, and returns what came of it with the exit status.
func matrixOf(t *testing.T, n *lab.Node) (m matrixSeen, status int, err error) {
	t.Helper()
	out, errs, err := weft(t, n, "matrix", "--json")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		status = exit.ExitCode()
	} else if err != nil {
		return m, 0, err
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		return m, status, fmt.Errorf("weft matrix on %s: %w\n%s%s", n.Name, err, out, errs)
	}
	return m, status, nil
}

// troubles reports whether the matrix names trouble with a node.
func (m matrixSeen) troubles(node string) bool {
	return slices.ContainsFunc(m.Troubles, func(x troubleSeen) bool { return slices.Contains(x.Nodes, node) })
}
