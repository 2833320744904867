package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// A node's device loses what it is to cut, without an error. A restarted weftd finds that by a peer's
// answers: bulk passes without runs, and status and doctor say so. When a feature of the device changes,
// weftd tries runs again.
func TestADeviceThatBreaksRunsIsFound(t *testing.T) {
	parallel(t)
	const config = `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","DisableOffloads":["tunnel-gso"]}}`
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	is := func(state string) {
		t.Helper()
		status(t, a.Node, await.Patience, func(s statusJSON) error {
			for _, o := range s.Counters.Offloads {
				if o.Name == "udp-gso" && o.State != state {
					return fmt.Errorf("udp-gso is %s, want it %s", o.State, state)
				}
			}
			return nil
		})
	}
	is("on")
	sh(t, a.Node.Host, `nft 'table netdev broken { chain out {
		type filter hook egress device "eth0" priority 0; meta length > 1514 drop; }; }'`)
	if err := a.Node.Restart(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	began := time.Now()
	is("broken")
	t.Logf("found %v after a restart", time.Since(began).Round(100*time.Millisecond))
	stream(t, a.Endpoint(4), b.Endpoint(4))
	found, err := examine(t, a.Node)
	says := func(f finding) bool { return f.ID == "daemon" && strings.Contains(f.Found, "udp-gso") }
	if err != nil || !slices.ContainsFunc(found, says) {
		t.Errorf("weft doctor says nothing of it: %+v, %v", found, err)
	}
	sh(t, a.Node.Host, "nft delete table netdev broken; ethtool -K eth0 tx-udp-segmentation off")
	is("on")
	stream(t, a.Endpoint(4), b.Endpoint(4))
}
