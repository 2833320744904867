package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// lastGoodIs waits until a node says that it runs on the last good configuration, and why, and that it
// is ready all the same.
func lastGoodIs(t *testing.T, n *lab.Node, want ...string) {
	t.Helper()
	status(t, n, await.Patience, func(s statusJSON) error {
		if said := fmt.Sprint(s.Config.Faults); !s.Ready || !s.Config.LastGood || !containsAll(said, want) {
			return fmt.Errorf("ready %v %q, last good %v, want %q in %s", s.Ready, s.NotReady, s.Config.LastGood,
				want, said)
		}
		return nil
	})
}

// Whatever is put into the store as the network configuration, and however often the nodes restart then,
// pods keep their network; the nodes name the fault, and take up what is good by themselves.
func TestBadConfigNeverReplacesTheLastGood(t *testing.T) {
	parallel(t)
	good := func(port int) string {
		return string(networkOf(fmt.Sprintf(`{"Type":"vxlan","Port":%d}`, port), false))
	}
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(good(8472))})
	a, b := l.Node(1), l.Node(2)
	args := a.Daemon.Args()
	reach(t, await.Patience, a.Pods[0], b.Pods[0], 4)
	stream := flowOf(t, a.Pods[0], b.Pods[0])
	for _, c := range []struct {
		name, config string
		says         []string
		flags        []string // of the node that restarts
	}{
		{"a typo in the type", string(networkOf(`{"Type":"vxlna"}`, false)), []string{"Backend.Type", `"vxlna"`},
			nil},
		{"truncated", `{"Network":"10.42.0.0/16","Backend":{"Ty`, []string{"JSON"}, nil},
		{"a backend that does not start",
			string(networkOf(`{"Type":"extension","PreStartupCommand":"nosuch"}`, false)), []string{"nosuch"},
			[]string{"--allow-extension"}},
		{"commands that anyone may have written",
			string(networkOf(`{"Type":"extension","PreStartupCommand":"nosuch"}`, false)),
			[]string{"is not TLS", "--allow-extension"}, nil},
		{"a network without the nodes' subnets", `{"Network":"10.99.0.0/16","Backend":{"Type":"vxlan"}}`,
			[]string{"Network is 10.99.0.0/16", a.Net.V4.Masked().String(), "--renumber"}, nil},
		{"gone", "", nil, nil},
	} {
		if c.config == "" {
			del(t, l.Store, configKey)
		} else {
			put(t, l.Store, configKey, c.config, 0)
		}
		status(t, b, await.Patience, func(s statusJSON) error { // which goes on as it is
			if !s.Ready || !s.Config.Differs || s.Config.LastGood {
				return fmt.Errorf("%s: ready %v %q, %+v", c.name, s.Ready, s.NotReady, s.Config)
			}
			return nil
		})
		a.Daemon.SetArgs(append(args, c.flags...)...)
		for range 2 {
			if err := a.Restart(await.Context(t, await.Patience)); err != nil {
				t.Fatalf("%s: %s", c.name, lab.Explain(err))
			}
			lastGoodIs(t, a, c.says...)
		}
	}
	m, err := a.Metrics(t.Context())
	if err != nil || !containsAll(m, []string{"\nweft_ready 1\n", "\nweft_config_fault 1\n",
		"\nweft_config_last_good 1\n"}) {
		t.Errorf("metrics: %v", err)
	}
	out, _, err := weft(t, a, "status")
	if err != nil || !containsAll(out, []string{"THE LAST GOOD ONE"}) {
		t.Errorf("status: %v\n%s", err, out)
	}
	// A node that waits for a good configuration adopts it. One that has had a good one since its start reports
	// what a restart would change.
	put(t, l.Store, configKey, good(8472), 0)
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Config.Differs || s.Config.LastGood {
				return fmt.Errorf("ready %v %q, %+v", s.Ready, s.NotReady, s.Config)
			}
			return nil
		})
	}
	put(t, l.Store, configKey,
		`{"Network":"10.42.0.0/16","SubnetLen":25,"Backend":{"Type":"vxlan","MTU":1400,"Port":4790}}`, 0)
	status(t, b, await.Patience, func(s statusJSON) error {
		if said := strings.Join(s.Config.Changes, "\n"); !containsAll(said,
			[]string{b.Net.V4.Masked().String(), "1450", "1350", "8472", "4790"}) {
			return fmt.Errorf("a restart changes %q", said)
		}
		return nil
	})
	stream.Lossless()

	// One that differs from the last good one is taken up too, by nodes that started with a bad one.
	put(t, l.Store, configKey, string(networkOf(`{"Type":"extension","PostStartupCommand":"false"}`, false)), 0)
	for _, n := range l.Nodes() {
		n.Daemon.SetArgs(append(n.Daemon.Args(), "--allow-extension")...)
		if err := n.Restart(await.Context(t, 30*time.Second)); err != nil {
			t.Fatal(lab.Explain(err))
		}
	}
	for _, n := range l.Nodes() {
		lastGoodIs(t, n, "PostStartupCommand", "was tried")
	}
	reach(t, await.Patience, a.Pods[0], b.Pods[0], 4)
	put(t, l.Store, configKey, string(networkOf(`{"Type":"udp","Port":8290}`, false)), 0)
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Backend.Port != 8290 || s.Config.Differs {
				return fmt.Errorf("ready %v %q, %+v %+v", s.Ready, s.NotReady, s.Backend, s.Config)
			}
			return nil
		})
	}
	reach(t, await.Patience, a.Pods[0], b.Pods[0], 4)
}
