package test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// directRestart kills the weftd of each of two nodes, and starts it again, while bytes go there and back
// between pods of theirs: the same connection goes on, and no pod is attached anew.
func directRestart(t *testing.T, a, b *lab.Pod, family int) {
	c, _ := talkTo(t, a, b.Host, netip.AddrPortFrom(b.Addr(family), 8080), 32<<10, time.Millisecond)
	c.goesOn(t, 100)
	for _, n := range []*lab.Node{b.Node, a.Node} {
		before := attachedTo(t, n)
		d := n.Daemon
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		<-d.Exited()
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
		c.goesOnWithin(t, 2*await.Patience, 100)
		if after := attachedTo(t, n); after != before {
			t.Errorf("%s: %d pods are attached, before it was killed %d", n.Name, after, before)
		}
	}
}

// attachedTo counts the pods of a node, of which none may have a problem.
func attachedTo(t *testing.T, n *lab.Node) (attached int) {
	t.Helper()
	await.OK(t, n.Name+" has ports for its pods", func() error {
		all, err := ask[struct {
			Pods []struct{ ID, State, Problem string }
		}](t.Context(), n, "pods")
		if err != nil {
			return err
		}
		attached = len(all.Pods)
		for _, p := range all.Pods {
			if p.State != "attached" || p.Problem != "" {
				return fmt.Errorf("%s is %s: %s", p.ID, p.State, p.Problem)
			}
		}
		return nil
	})
	return attached
}
