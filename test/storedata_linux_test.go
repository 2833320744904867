package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

// lastingPeer is a record without a node behind it, so that nobody writes it again.
const (
	lastingPeer = "10.42.240.0/24"
	lastingKey  = prefix + "/subnets/10.42.240.0-24"
	lastingText = `{"PublicIP":"198.18.7.40","PublicIPv6":null}`
)

// TestStoreData has a store say what is wrong, in one lab one after the other. No packet between two nodes is lost, no
// peer goes for it, nobody restarts, and no alarm is left when the store is right again.
func TestStoreData(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	saved := snapshot(t, l)
	reach(t, await.Patience, a, b, 4)
	for _, c := range []struct {
		name  string
		fault func(*testing.T, *lab.Lab)
	}{
		{"hostile records", hostileRecords},
		{"garbled records", garbledRecords},
		{"no configuration", noConfiguration},
		{"from a snapshot", func(t *testing.T, l *lab.Lab) { fromSnapshot(t, l, saved) }},
		{"wiped", wiped},
	} {
		t.Run(c.name, func(t *testing.T) {
			put(t, l.Store, lastingKey, lastingText, time.Hour)
			before := map[*lab.Node]statusJSON{}
			for _, n := range l.Nodes() {
				knows(t, n, await.Patience, lastingPeer, true)
				before[n] = current(t, n)
			}
			f := flowOf(t, a, b)
			c.fault(t, l)
			for _, n := range l.Nodes() {
				s := status(t, n, await.Timers, func(s statusJSON) error {
					if !s.Ready || s.Alarm != "" || s.Lease == nil || !s.Lease.Held || !s.Store.Connected || s.Rejected != 0 {
						return fmt.Errorf("ready %v %q, alarm %q, lease %+v, store %+v, %d rejected",
							s.Ready, s.NotReady, s.Alarm, s.Lease, s.Store, s.Rejected)
					}
					return nil
				})
				if was := before[n]; s.PID != was.PID || s.Lease.Subnet != was.Lease.Subnet {
					t.Errorf("%s: pid %d, before %d; %s, before %s", n.Name, s.PID, was.PID, s.Lease.Subnet, was.Lease.Subnet)
				}
				await.OK(t, n.Name+"'s record is in the store", func() error {
					if all := list(t, l.Store, recordKey(n)); len(all) != 1 {
						return fmt.Errorf("%+v", all)
					}
					return nil
				})
			}
			knows(t, a.Node, await.Patience, b.Node.Net.V4.Masked().String(), true)
			knows(t, b.Node, await.Patience, a.Node.Net.V4.Masked().String(), true)
			f.Lossless()
			reach(t, await.Patience, b, a, 4)
			del(t, l.Store, lastingKey) // which is believed now
			for _, n := range l.Nodes() {
				knows(t, n, await.Patience, lastingPeer, false)
			}
		})
	}
}

// alarmed waits until all nodes disbelieve the store for that reason, and looks that they have their peers all the same.
func alarmed(t *testing.T, l *lab.Lab, why string) {
	t.Helper()
	for _, n := range l.Nodes() {
		s := status(t, n, await.Timers, func(s statusJSON) error {
			if !strings.Contains(s.Alarm, why) {
				return fmt.Errorf("alarm %q, want %q", s.Alarm, why)
			}
			return nil
		})
		t.Logf("%s: %s", n.Name, s.Alarm)
		if s.Peers != 2 {
			t.Errorf("%s has %d peers, want 2", n.Name, s.Peers)
		}
		knows(t, n, await.Patience, lastingPeer, true)
		if m, err := n.Metrics(t.Context()); err != nil || !strings.Contains(m, "\nweft_removals_disbelieved 1\n") {
			t.Errorf("%s: weft_removals_disbelieved is not 1: %v", n.Name, err)
		}
	}
}

// wiped has etcd lose all that it has, and become another cluster, as when its disk is replaced.
func wiped(t *testing.T, l *lab.Lab) {
	for range 20 { // so that what the nodes write afterwards has a lower revision
		put(t, l.Store, lastingKey, lastingText, time.Hour)
	}
	cluster, d := current(t, l.Node(1)).Store.ClusterID, l.Store.Daemon
	if err := errors.Join(d.Kill(), os.RemoveAll(l.Store.Dir)); err != nil {
		t.Fatal(err)
	}
	d.SetArgs(append(d.Args(), "--initial-cluster-token=another")...)
	if err := l.Store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	alarmed(t, l, "another cluster")
	put(t, l.Store, configKey, ipv4Only, 0)
	writtenAgain(t, l)
	alarmed(t, l, "another cluster")
	put(t, l.Store, lastingKey, lastingText, time.Hour)
	if now := current(t, l.Node(1)).Store.ClusterID; now == cluster {
		t.Errorf("it is the same cluster, %s", now)
	}
}

// writtenAgain waits until the store has the records of both nodes, and no other.
func writtenAgain(t *testing.T, l *lab.Lab) {
	t.Helper()
	await.Within(t, await.Timers, "the nodes' records are written again", func() error {
		if all := list(t, l.Store, prefix+"/subnets/"); len(all) != 2 {
			return fmt.Errorf("%+v", all)
		}
		return nil
	})
}

// snapshot is a copy of the store's data from before the second node had its subnet.
func snapshot(t *testing.T, l *lab.Lab) string {
	t.Helper()
	d, second, saved := l.Store.Daemon, l.Node(2), filepath.Join(t.TempDir(), "copy")
	if err := second.Stop(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	del(t, l.Store, recordKey(second))
	if err := errors.Join(d.Kill(), os.CopyFS(saved, os.DirFS(l.Store.Dir)), l.Store.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	return saved
}

// fromSnapshot has etcd put back to a copy of its data.
func fromSnapshot(t *testing.T, l *lab.Lab, saved string) {
	dir := l.Store.Dir
	err := errors.Join(l.Store.Daemon.Kill(), os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(saved)), os.Chmod(dir, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	alarmed(t, l, "went back")
	writtenAgain(t, l)
	put(t, l.Store, lastingKey, lastingText, time.Hour)
}

// hostile are records that no node writes, with the reason that each is refused for.
func hostile() []struct{ key, value, reason string } {
	sane := func(last string) string { return `{"PublicIP":"198.18.7.` + last + `","PublicIPv6":null}` }
	return []struct{ key, value, reason string }{
		{"10.42.201.0-24", `{"PublicIP":`, "bad_value"},
		{"10.42.202.0-24", `{"PublicIP":"nonsense"}`, "bad_value"},
		{"10.42.203.0-24", `{"PublicIP":"198.18.7.3","Weft":{"Node":"` + strings.Repeat("x", 100<<10) + `"}}`, "bad_value"},
		{"10.42.204.0-24/extra", sane("4"), "bad_key"},
		{"nonsense", sane("5"), "bad_key"},
		{"10.42.206.1-24", sane("6"), "bad_key"},
		{"10.1.2.0-24", sane("7"), "outside_network"},
		{"10.42.208.0-23", sane("8"), "wrong_length"},
		{"198.18.0.0-24", sane("10"), "outside_network"}, // the underlay's own addresses
		{"10.42.212.0-24", `{"PublicIP":"127.0.0.1","PublicIPv6":null}`, "bad_address"},
		{"10.42.213.0-24", `{"PublicIPv6":null}`, "bad_address"},
	}
}

// refuses compares the records that weft lists as not accepted with those that have to be.
func refuses(l leasesJSON) error {
	got := map[string]string{}
	for _, r := range l.Rejected {
		got[r.Key] = r.Reason
	}
	for _, h := range hostile() {
		if got[h.key] != h.reason {
			return fmt.Errorf("%s: reason %q, want %q; all: %v", h.key, got[h.key], h.reason, got)
		}
	}
	return nil
}

// hostileRecords has records that no node writes. Each is refused with its reason, and costs only itself.
func hostileRecords(t *testing.T, l *lab.Lab) {
	const foreign = prefix + "/subnets/10.42.220.0-24"
	for _, h := range hostile() {
		put(t, l.Store, prefix+"/subnets/"+h.key, h.value, 0)
	}
	put(t, l.Store, foreign, `{"PublicIP":"198.18.7.20","PublicIPv6":null,"BackendType":"vxlan",`+
		`"BackendData":{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}}`, 0)
	for _, n := range l.Nodes() {
		await.OK(t, "all refused by "+n.Name, func() error {
			all, err := weftTells[leasesJSON](t, n, "lease", "list")
			return errors.Join(err, refuses(all))
		})
		status(t, n, await.Patience, func(s statusJSON) error {
			if len(s.Backend.Notes) != 1 || s.Backend.Error != "" || !s.Ready {
				return fmt.Errorf("notes %q, error %q, ready %v %q", s.Backend.Notes, s.Backend.Error, s.Ready, s.NotReady)
			}
			return nil
		})
	}
	for _, h := range hostile() {
		del(t, l.Store, prefix+"/subnets/"+h.key)
	}
	del(t, l.Store, foreign)
}

// garbledRecords has every record's value become garbage. Each owner writes its own anew. Meanwhile, and where there is no
// owner to do so, the record counts as it was.
func garbledRecords(t *testing.T, l *lab.Lab) {
	for _, kv := range list(t, l.Store, prefix+"/subnets/") {
		put(t, l.Store, kv.key, "{garbage", 0)
	}
	await.OK(t, "own records written anew", func() error {
		for _, kv := range list(t, l.Store, prefix+"/subnets/") {
			if kv.key != lastingKey && !strings.Contains(kv.value, `"PublicIP":"198.18.0.`) {
				return fmt.Errorf("%s: %s", kv.key, kv.value)
			}
		}
		return nil
	})
	for _, n := range l.Nodes() {
		knows(t, n, await.Patience, lastingPeer, true)
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Rejected != 1 || s.Alarm == "" {
				return fmt.Errorf("ready %v %q, %d rejected, alarm %q", s.Ready, s.NotReady, s.Rejected, s.Alarm)
			}
			return nil
		})
	}
	put(t, l.Store, lastingKey, lastingText, time.Hour)
}

// noConfiguration has the records vanish together with the configuration.
func noConfiguration(t *testing.T, l *lab.Lab) {
	del(t, l.Store, configKey)
	for _, kv := range list(t, l.Store, prefix+"/subnets/") {
		del(t, l.Store, kv.key)
	}
	alarmed(t, l, "configuration")
	put(t, l.Store, configKey, ipv4Only, 0)
	put(t, l.Store, lastingKey, lastingText, time.Hour)
}
