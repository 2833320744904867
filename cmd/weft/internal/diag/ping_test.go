package diag

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/ping"
	"weft/cmd/weft/internal/cli"
	"weft/test/golden"
)

// pinged is a report with a layer of each verdict.
func pinged() ping.Report {
	part := func(f float64) *float64 { return &f }
	return ping.Report{
		SchemaVersion: ping.SchemaVersion, Target: "db2", Node: "db2.example", ID: "3f2a41c9",
		Source: "the running weftd", Took: 3300 * time.Millisecond,
		Notes: []string{"this node is not ready, so that what follows may be its own fault: weft status"},
		Routes: []ping.Result{
			{Family: 4, Backend: "udp", Path: "raw", Broken: diagnose.Port,
				Alike: []diagnose.Layer{diagnose.DataPlane}, Layers: []ping.Row{
					{Layer: diagnose.Underlay, Verdict: ping.Note, State: diagnose.Answered, To: addr("192.0.2.2"),
						By: "icmp", Sent: 5, Answered: 5, Loss: part(0),
						RTT: &ping.RTT{Min: 81000, Median: 1500000, Max: 12000000}, MTU: 1400, Expected: 1500,
						Detail: "the way carries 1400 bytes"},
					{Layer: diagnose.Port, Verdict: ping.Broken, State: diagnose.Silent, To: addr("192.0.2.2"), Port: 8285,
						By: "udp", Sent: 5, Loss: part(1), Expected: 1500, Detail: "no answer"},
					{Layer: diagnose.Daemon, Verdict: ping.Unknown, State: diagnose.NotAsked, To: addr("10.42.2.0"),
						By: "udp", Detail: "it does not run weft"},
				}, Causes: []diagnose.Cause{
					{Code: "dropped", Cause: "UDP port 8285 is dropped", Command: "tcpdump -ni any udp port 8285",
						Where: "on evil\x1b[2J", Tells: "no packets"},
					{Code: "weftd-frozen", Cause: "its weftd is frozen", Command: "weft status", Where: "here",
						Tells: "no answer"},
				}},
			{Family: 6, Backend: "udp", Path: "raw", Layers: []ping.Row{
				{Layer: diagnose.DataPlane, Verdict: ping.OK, State: diagnose.Answered, To: addr("fd00:2::"), By: "icmp",
					Sent: 5, Answered: 5, Loss: part(0), RTT: &ping.RTT{Min: 200000, Median: 300000, Max: 400000}, MTU: 1452,
					Expected: 1452},
			}},
		},
	}
}

func TestPingPrints(t *testing.T) {
	var out bytes.Buffer
	f := pingFlags{App: cli.NewApp("")}
	if status := cli.ExitStatus(0); !errors.As(f.print(&out, pinged()), &status) ||
		status != cli.ExitFailure {
		t.Errorf("exit status %d", status)
	}
	golden.Check(t, "ping", out.Bytes())
	out.Reset()
	f.JSON = true
	_ = f.print(&out, pinged()) // as before
	golden.Check(t, "ping-json", out.Bytes())
	var back ping.Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Routes[0].Broken != diagnose.Port {
		t.Errorf("the JSON is not what was printed: %v", err)
	}
	out.Reset()
	if err := f.print(&out, ping.Report{Healthy: true}); err != nil {
		t.Errorf("a healthy one: %v", err)
	}
}

// A node is found as the other commands find it, and an address in its subnet is a pod's.
func TestPingFindsNodesAndPods(t *testing.T) {
	k := ping.Known{Nodes: []ping.Node{
		{Record: control.Record{Name: "db1", Own: true, Subnet: prefix("10.42.1.0/24"),
			IPv6Subnet: prefix("fd00:1::/64"), PublicIP: addr("192.0.2.1")}},
		{Record: control.Record{Name: "db2.example", Node: "3f2a41c9d077", Subnet: prefix("10.42.2.0/24"),
			IPv6Subnet: prefix("fd00:2::/64"), PublicIP: addr("192.0.2.2"), PublicIPv6: addr("2001:db8::2")}},
	}}
	for _, c := range []struct {
		flags     pingFlags
		word      string
		node, pod string
		says      string
	}{
		{pingFlags{}, "db2", "db2.example", "", ""},
		{pingFlags{}, "3f2a41", "db2.example", "", ""},
		{pingFlags{}, "192.0.2.2", "db2.example", "", ""},
		{pingFlags{}, "2001:db8::2", "db2.example", "", ""},
		{pingFlags{}, "10.42.2.0/24", "db2.example", "", ""},
		{pingFlags{}, "10.42.2.0", "db2.example", "", ""},
		{pingFlags{}, "10.42.2.7", "db2.example", "10.42.2.7", ""},
		{pingFlags{six: true}, "fd00:2::7", "db2.example", "fd00:2::7", ""},
		{pingFlags{}, "10.42.1.7", "db1", "10.42.1.7", ""},
		{pingFlags{}, "db1", "", "", "itself"},
		{pingFlags{}, "192.0.2.1", "", "", "itself"},
		{pingFlags{}, "db2.exampel", "", "", "no node"},
		{pingFlags{}, "10.42.9.9", "", "", `"10.42.9.9"`},
		{pingFlags{six: true}, "10.42.2.7", "", "", "address"},
	} {
		n, want, err := c.flags.find(k, c.word)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %q", c.word, err, c.says)
			}
			continue
		}
		pod := netip.Addr{}
		if c.pod != "" {
			pod = addr(c.pod)
		}
		if err != nil || n.Name != c.node || want.Pod != pod {
			t.Errorf("%s: got %s, %v, %v; want %s, %v", c.word, n.Name, want.Pod, err, c.node, c.pod)
		}
	}
}
