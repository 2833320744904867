package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/netns"
)

const dualStack = `{"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48","Backend":{"Type":"udp"}}`

func up(t *testing.T, spec Spec) *Lab {
	t.Helper()
	netns.TUN(t)
	spec.Progress = func(line string) { t.Log(line) }
	l, err := Up(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestKernelLabs(t *testing.T) {
	for _, c := range []struct {
		name string
		spec Spec
		mtu  int
	}{
		{"host-gw", Spec{Driver: KernelHostGW, Nodes: 3}, 1500},
		{"host-gw direct", Spec{Driver: KernelHostGW, Direct: true, MTU: 9000}, 9000},
		{"vxlan", Spec{Driver: KernelVXLAN}, 1450},
		{"one node", Spec{Driver: KernelHostGW, Nodes: 1}, 1500},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.spec.NetworkConfig = json.RawMessage(dualStack)
			l := up(t, c.spec)
			pods := 2 * len(l.Nodes())
			r, err := l.Measure(await.Context(t, time.Minute),
				MeasurePlan{Echo: 100 * time.Millisecond, Stream: 250 * time.Millisecond, Wait: await.Patience})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Pairs) != 2*pods*(pods-1) {
				t.Errorf("%d pairs of %d pods in two families", len(r.Pairs), pods)
			}
			if faults := r.Faults(); len(faults) > 0 {
				t.Errorf("faults: %q", faults)
			}
			if want := 2 * min(1, len(l.Nodes())-1); len(r.Streams) != want {
				t.Errorf("%d streams, want %d", len(r.Streams), want)
			}
			eth0, err := l.Pods()[0].link("eth0")
			if err != nil || eth0.Attrs().MTU != c.mtu {
				t.Errorf("pod's mtu %d, want %d (%v)", eth0.Attrs().MTU, c.mtu, err)
			}
			var table bytes.Buffer
			if err := r.WriteTable(&table); err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%s", &table)
		})
	}
}

func TestAddNode(t *testing.T) {
	l := up(t, Spec{Driver: KernelHostGW, PodsPerNode: 1})
	n, err := l.AddNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := Reach(await.Context(t, await.Patience), l.Node(1).Pods[0].Endpoint(4), n.Pods[0].V4); err != nil {
		t.Error(err)
	}
	if _, err := up(t, Spec{Driver: KernelHostGW, Direct: true}).AddNode(t.Context()); err == nil {
		t.Error("a third node on one cable")
	}
}

func TestReachGivesUp(t *testing.T) {
	l := up(t, Spec{Driver: KernelHostGW, PodsPerNode: 1})
	err := Reach(await.Context(t, 200*time.Millisecond), l.Pods()[0].Endpoint(4),
		netip.MustParseAddr("10.42.77.77"))
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want %v", err, ErrUnreachable)
	}
}

func TestCommandOnAHost(t *testing.T) {
	l := up(t, Spec{Driver: KernelHostGW})
	out, err := l.Node(2).Command(t.Context(), "cat", "/proc/sys/net/ipv4/ip_forward")
	if err != nil || string(out) != "1\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := l.Node(2).Command(t.Context(), "sh", "-c", "echo reason >&2; exit 3"); err == nil ||
		!strings.Contains(err.Error(), "reason") {
		t.Errorf("error lacks what the program said: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	before := hostLinks(t)
	l := up(t, Spec{Driver: KernelVXLAN})
	dir := l.Spec.StateDir
	// its parent has ended
	out, err := l.Nodes()[0].Command(t.Context(), "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(out)) + "/ns/net"); !os.IsNotExist(err) ||
		len(l.Left()) > 0 {
		t.Errorf("process %s: %v, left %v", out, err, l.Left())
	}
	l.Close()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("state directory: %v", err)
	}
	if after := hostLinks(t); after != before {
		t.Errorf("devices before %q, after %q", before, after)
	}
}

func hostLinks(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir("/sys/class/net")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestDaemonLife(t *testing.T) {
	l := up(t, Spec{Driver: KernelHostGW, Nodes: 1, PodsPerNode: 1})
	d := l.Node(1).Daemon
	d.SetPath("/bin/sh")
	d.SetArgs("-c", `trap "echo asked; exit 3" TERM; echo started; while :; do sleep 0.01; done`)
	if err := d.Signal(unix.SIGTERM); !errors.Is(err, ErrNotRunning) {
		t.Errorf("before the start: %v", err)
	}
	start := func() {
		t.Helper()
		size := len(d.LogTail(1000))
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		for len(d.LogTail(1000)) == size { // the shell prints something once it has its trap
			time.Sleep(time.Millisecond)
		}
	}
	start()
	if err := d.Start(); err == nil {
		t.Error("started twice")
	}
	if err := d.Kill(); err != nil || d.PID() != 0 {
		t.Errorf("kill: %v, pid %d", err, d.PID())
	}
	start()
	err := d.Stop(await.Context(t, await.Patience))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("stop of one that exits with 3: %v", err)
	}
	if got := string(d.LogTail(1)); got != "asked" {
		t.Errorf("last log line %q", got)
	}
	d.SetArgs("-c", `trap "" TERM; echo deaf; while :; do sleep 0.01; done`)
	start()
	if err := d.Stop(await.Context(t, 20*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) ||
		d.PID() != 0 {
		t.Errorf("stop of one that does not listen: %v, pid %d", err, d.PID())
	}
}

func TestWeftdThatFailsIsExplained(t *testing.T) {
	for _, c := range []struct {
		name, script, want string
		ready              time.Duration // as long as it takes to say the reason, on a busy machine
	}{
		{"exits", "echo the reason; exit 4", "exit status 4", await.Patience},
		{"never ready", "echo the reason; exec sleep 100", "not ready after 2s", 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake := t.TempDir() + "/weftd"
			if err := os.WriteFile(fake, []byte("#!/bin/sh\n"+c.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := Up(t.Context(), Spec{WeftdPath: fake, ReadyTimeout: c.ready})
			var ne *NodeError
			if !errors.As(err, &ne) {
				t.Fatalf("%v, want a NodeError", err)
			}
			defer os.RemoveAll(strings.TrimSuffix(ne.LogFile, "/node1/weftd.log"))
			if ne.Node != "node1" || string(ne.LogTail) != "the reason" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, log %q", err, ne.LogTail)
			}
			if _, err := os.Stat(ne.LogFile); err != nil {
				t.Errorf("the log is gone: %v", err)
			}
		})
	}
}
