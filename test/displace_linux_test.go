package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
)

// A record that names a living node's addresses takes nothing from it: neither where it is known, nor on a node
// that starts anew, and nothing is lost. Each of the two records is shown for what it is.
func TestRecordDisplacesNobody(t *testing.T) {
	parallel(t)
	const thief = "10.42.0.0-24&fd42::-64" // before all others
	for name, backend := range map[string]string{"udp": `{"Type":"udp"}`, "vxlan in user space": `{"Type":"vxlan","Userspace":"always"}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := up(t, lab.Spec{NetworkConfig: networkOf(backend, true)})
			n := l.Node(1)
			a, b := n.Pods[0], l.Node(2).Pods[0]
			record := recordOf(t, l, l.Node(2))
			reach(t, await.Patience, a, b, 4)
			reach(t, await.Patience, a, b, 6)
			answering(t, l, []int{4, 6}, n.Net.MTU)
			stream := flowOf(t, a, b)
			put(t, l.Store, prefix+"/subnets/"+thief, strings.ReplaceAll(record, `"node2"`, `"thief"`), 0)
			shown(t, n, b.Node)
			reach(t, await.Patience, a, b, 6)
			stream.Lossless()
			// Without the peers of before it is the older record that counts.
			if err := n.Stop(await.Context(t, await.Patience)); err != nil {
				t.Fatal(lab.Explain(err))
			}
			if err := os.Remove(filepath.Join(n.CacheDir, "lease.json")); err != nil {
				t.Fatal(err)
			}
			if err := n.Start(await.Context(t, await.Patience)); err != nil {
				t.Fatal(lab.Explain(err))
			}
			shown(t, n, b.Node)
			reach(t, await.Patience, a, b, 4)
			reach(t, await.Patience, b, a, 6)
			// When the node's own record is gone the other is let in.
			if err := b.Node.Kill(); err != nil {
				t.Fatal(err)
			}
			del(t, l.Store, recordKey(b.Node))
			await.OK(t, "the other is let in", func() error {
				p, err := waysOf(t, n, "thief")
				if err == nil && strings.Contains(fmt.Sprint(p.Ways), "skipped") {
					err = fmt.Errorf("%+v", p)
				}
				return err
			})
		})
	}
}

// wayJSON is what weft peers --json prints about one record.
type wayJSON struct {
	Name, Path           string
	TxPackets, RxPackets uint64
	Ways                 []struct{ Subnet, Way, Via, Reason string }
}

func waysOf(t *testing.T, n *lab.Node, name string) (wayJSON, error) {
	t.Helper()
	all, err := ask[struct{ Peers []wayJSON }](t.Context(), n, "peers")
	if err != nil {
		return wayJSON{}, err
	}
	for _, p := range all.Peers {
		if p.Name == name {
			return p, nil
		}
	}
	return wayJSON{}, fmt.Errorf("there is no %s: %+v", name, all.Peers)
}

// shown waits until a node knows the thief's record, and checks what it says about both records.
func shown(t *testing.T, n, victim *lab.Node) {
	t.Helper()
	await.OK(t, "the record is known and refused", func() error {
		p, err := waysOf(t, n, "thief")
		if err != nil {
			return err
		}
		for _, w := range p.Ways {
			if w.Way != "skipped" || !strings.Contains(w.Reason, victim.Name) {
				return fmt.Errorf("%+v", p)
			}
		}
		if len(p.Ways) != 2 || p.Path != "" || p.TxPackets+p.RxPackets != 0 {
			return fmt.Errorf("%+v", p)
		}
		return nil
	})
	p, err := waysOf(t, n, victim.Name)
	if err != nil || p.Path == "" || strings.Contains(fmt.Sprint(p.Ways), "skipped") {
		t.Errorf("%+v, %v", p, err)
	}
	status(t, n, await.Patience, func(s statusJSON) error {
		if notes := fmt.Sprint(s.Backend.Notes); !s.Ready || !strings.Contains(notes, "198.18.0.2") || strings.Contains(notes, "peer "+victim.Name+" ") {
			return fmt.Errorf("ready %v, notes %s", s.Ready, notes)
		}
		return nil
	})
	text, _, err := weft(t, n, "peers")
	if err != nil || !strings.Contains(text, "delete") {
		t.Errorf("%v\n%s", err, text)
	}
}
