package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"weft/bench/report"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/netns"
)

// weft bench measures between two pods of a lab that is up. The figures do not matter here.
func TestBench(t *testing.T) {
	parallel(t)
	netns.TUN(t)
	weft, dir := command(t, "weft"), t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(await.Context(t, await.Timers), weft, args...)
		var errs bytes.Buffer
		cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), "WEFT_LAB_STATE="+dir), &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, &errs)
		}
		return out
	}
	run("lab", "up", "--lab", "bench", "--backend", "kernel-host-gw", "--pods", "1", "--direct")
	defer run("lab", "down", "--lab", "bench")
	out := run("bench", "--lab", "bench", "--from", "node1-pod1", "--to", "node2-pod1", "--quick", "--quiet",
		"--measures", "tcp", "--tcp", "1s", "--json", "-")
	var d report.Document
	if err := json.Unmarshal(out, &d); err != nil || d.Schema != report.Schema || len(d.Measures) == 0 ||
		!strings.Contains(d.Topology, "node1-pod1") {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, m := range d.Measures {
		for _, r := range m.Results {
			if r.Figures[0].Median <= 0 {
				t.Errorf("%s of %s: %+v", m.Key, r.Rung, r.Figures[0])
			}
		}
	}
}

const manyPeers = 10_000

// BenchmarkManyPeers has a weftd start with 10,000 peers, and reports how much is resident once it knows
// them.
func BenchmarkManyPeers(b *testing.B) {
	l := up(b, lab.Spec{NetworkConfig: json.RawMessage(
		`{"Network":"10.0.0.0/8","SubnetLen":24,"SubnetMin":"10.42.0.0","SubnetMax":"10.42.255.0","Backend":{"Type":"udp","Path":"raw"}}`)})
	var granted struct{ ID string }
	if err := etcd(b, l.Store, "/v3/lease/grant", map[string]any{"TTL": "3600"}, &granted); err != nil {
		b.Fatal(err)
	}
	n := l.Node(2)
	if err := putPeers(b, l.Store, 0, manyPeers, granted.ID, n.Net.MTU); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := n.Restart(await.Context(b, await.Timers)); err != nil {
			b.Fatal(lab.Explain(err))
		}
		status(b, n, await.Timers, func(s statusJSON) error {
			if s.Peers != manyPeers+1 || s.Rejected != 0 {
				return fmt.Errorf("%d peers, %d records rejected", s.Peers, s.Rejected)
			}
			return nil
		})
	}
	b.ReportMetric(float64(resident(b, n.Daemon.PID())), "KiB-resident")
	reach(b, await.Patience, l.Node(1).Pods[0], n.Pods[0], 4)
}

// resident is how much of a process is resident, in KiB (VmRSS in proc_pid_status(5)).
func resident(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "\nVmRSS:")
	n, err := strconv.Atoi(strings.Fields(rest + " 0")[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// peerNumber is the subnet and outer address of one of many nodes that exist in the store only. The wire,
// which is their gateway, takes what is sent to them.
func peerNumber(i int) (subnet netip.Prefix, outer netip.Addr) {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 100 + byte(i>>8), byte(i), 0}), 24),
		netip.AddrFrom4([4]byte{198, 19, byte(i >> 8), byte(i)})
}

// putPeers writes the records of peers from first on, a hundred in a transaction, since etcd takes 128
// operations in one.
func putPeers(t testing.TB, s *lab.Store, first, n int, lease string, mtu int) error {
	t.Helper()
	type op struct {
		Put map[string]any `json:"requestPut"`
	}
	for at := first; at < first+n; {
		var ops []op
		for ; at < first+n && len(ops) < 100; at++ {
			subnet, outer := peerNumber(at)
			key := prefix + "/subnets/" + strings.ReplaceAll(subnet.String(), "/", "-")
			value := fmt.Sprintf(`{"PublicIP":%q,"PublicIPv6":null,"BackendType":"udp",`+
				`"Weft":{"Node":"far-%d","Recv":["gso","pcsum","pack"],"MTU":%d}}`, outer, at, mtu)
			ops = append(ops, op{map[string]any{"key": []byte(key), "value": []byte(value), "lease": lease}})
		}
		if err := etcd(t, s, "/v3/kv/txn", map[string]any{"success": ops}, nil); err != nil {
			return err
		}
	}
	return nil
}
