package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// answering waits until every node's probes have had answers from every other node, by each family, with packets of mtu bytes.
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
					if a.Answers != "yes" || a.By != "udp" || a.RTT <= 0 || a.Lossy || a.LargeLost || a.PathMTU != mtu || a.Likely != "" {
						err = fmt.Errorf("%s: %+v, want a path MTU of %d", p.Name, a, mtu)
					}
				}
			}
			return err
		})
	}
	await.Within(t, await.Timers, "the matrix of "+l.Node(1).Name, func() error { // a node that has no time for an answer is said to be late
		m, status, err := matrixOf(t, l.Node(1))
		if err == nil && (!m.Reached || status != 0 || len(m.Nodes) != len(l.Nodes()) || len(m.Troubles) > 0 || m.Pairs.Well != m.Pairs.All) {
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
	Troubles []struct {
		Nodes               []string
		Found, Likely, Look string
	}
	Reached bool
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

// told waits until other, asked for the matrix, names one trouble with what it found and what is likely.
func told(t *testing.T, other *lab.Node, found, likely string) {
	t.Helper()
	await.Within(t, await.Timers, "the matrix says that "+found, func() error {
		m, status, err := matrixOf(t, other)
		if err != nil {
			return err
		}
		if status != 1 || m.Reached || len(m.Troubles) != 1 || m.Troubles[0].Found != found || !strings.Contains(m.Troubles[0].Likely, likely) || m.Troubles[0].Look == "" {
			return fmt.Errorf("exit status %d, %+v", status, m)
		}
		return nil
	})
}

// What goes wrong between two nodes is seen by the other one, said once with its cause, and over when it is mended, while nothing is
// said of what is well. Each fault has a lab of its own, since most of the time is spent waiting until a fault counts as one.
func TestWhatLiesBetweenTwoNodes(t *testing.T) {
	first(t) // a node that has no processor is silent, and that is said too
	t.Parallel()
	silent := func(p probeSeen) bool { return p.Answers == "no" && p.Likely != "" && p.Look != "" }
	for _, c := range []struct {
		name   string
		wire   []string // rules of nftables on the bridge of the underlay, in which {me} and {peer} are addresses; nil to stop the daemon
		is     func(probeSeen) bool
		line   string
		likely string
		over   string
		matrix string // what a third node's matrix finds; "" if it is not asked
	}{
		{"the port is dropped", []string{"ip saddr {peer} drop", "ip daddr {peer} drop"}, silent, "peer node2 no longer answers", "UDP port 8285 is dropped", "peer node2 answers", ""},
		{"it is dropped one way", []string{"ip saddr {me} ip daddr {peer} drop"}, silent,
			"peer node2 no longer answers", "what it sends arrives", "peer node2 answers", "node2 hears nothing from node1, and node1 hears node2"},
		{"a part is lost one way", []string{"ip saddr {me} ip daddr {peer} numgen inc mod 5 < 2 drop"},
			func(p probeSeen) bool { return p.Answers == "yes" && p.LossOut != nil && *p.LossOut > 0.1 && p.Lossy },
			"peer node2 loses packets", "drops a part", "peer node2 loses no packets any more", ""},
		{"large ones are lost", []string{"ip daddr {peer} ip length > 1400 drop"},
			func(p probeSeen) bool {
				return p.Answers == "yes" && p.LargeLost && p.PathMTU <= 1372 && p.PathMTU > 1360
			},
			"peer node2 gets no large packets", "fragmentation needed", "peer node2 gets large packets again", ""},
		{"the daemon is stopped", nil, silent, "peer node2 no longer answers", "its weftd is stopped or frozen", "peer node2 answers", "node2 answers none of the 2 nodes that told of it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			busy(t)
			l := up(t, lab.Spec{Nodes: 3, NetworkConfig: []byte(ipv4Only)})
			wire, err := l.Host("wire")
			if err != nil {
				t.Fatal(err)
			}
			me, peer := l.Node(1), l.Node(2)
			each := func(n *lab.Node, what string, is func(probeSeen) bool) time.Duration {
				t.Helper()
				return await.Within(t, await.Timers, what, func() error {
					all, err := probesOf(t, me, n)
					for _, p := range all {
						if !is(p) {
							err = fmt.Errorf("%+v", p)
						}
					}
					return err
				})
			}
			healthy := func(p probeSeen) bool {
				return p.Answers == "yes" && !p.Lossy && !p.LargeLost && p.PathMTU == 1472 && p.RTT > 0 && p.Likely == ""
			}
			each(peer, "a healthy peer", healthy)
			each(l.Node(3), "another healthy peer", healthy)
			said := func() []string {
				var lines []string
				for line := range strings.Lines(string(me.Daemon.LogTail(5000))) {
					if strings.Contains(line, "component=probe") {
						lines = append(lines, line)
					}
				}
				return lines
			}
			if lines := said(); len(lines) > 0 {
				t.Errorf("said while all was well: %q", lines)
			}
			if c.wire == nil {
				signal(t, peer, unix.SIGSTOP)
			} else {
				// On the bridge, since a packet socket gets and sends what no rule of the node itself sees.
				rules := "udp dport 8285 " + strings.Join(c.wire, "\nudp dport 8285 ")
				rules = strings.NewReplacer("{me}", me.Underlay4.String(), "{peer}", peer.Underlay4.String()).Replace(rules)
				sh(t, wire, "nft 'table netdev hole { chain c { type filter hook ingress devices = { node1, node2, node3 } priority 0\n"+rules+"\n}\n}'")
			}
			t.Logf("seen after %v", each(peer, c.name, c.is).Round(time.Second))
			find := func(what, text string) {
				t.Helper()
				await.Within(t, await.Timers, what, func() error {
					n, lines := 0, said()
					for _, line := range lines {
						if strings.Contains(line, text) {
							n++
						}
					}
					if n != 1 {
						return fmt.Errorf("%d lines with %q in %q", n, text, lines)
					}
					return nil
				})
			}
			find("it is said once", c.line)
			find("it has its cause", c.likely)
			if c.matrix != "" {
				told(t, l.Node(3), c.matrix, "UDP port 8285 is dropped on the way")
			}
			if c.wire == nil {
				signal(t, peer, unix.SIGCONT)
			} else {
				sh(t, wire, "nft delete table netdev hole")
			}
			t.Logf("over after %v", each(peer, c.name+" is over", healthy).Round(time.Second))
			find("it is said to be over", c.over)
			each(l.Node(3), "the peer that was well is well", healthy)
			for _, line := range said() {
				if !strings.Contains(line, "peer node2") {
					t.Errorf("said of what was well: %s", line)
				}
			}
		})
	}
}

// probesOf is what one node says of another, which has one address.
func probesOf(t *testing.T, me, of *lab.Node) (all []probeSeen, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	answer, err := ask[probesSeen](ctx, me, "peers")
	for _, p := range answer.Peers {
		if p.Name == of.Name {
			all = p.Probes
		}
	}
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d probes of %s", len(all), of.Name)
	}
	return all, err
}
