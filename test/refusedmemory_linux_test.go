package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// TestMemoryThatIsRefused has the kernel give one weftd no memory more (RLIMIT_DATA, getrlimit(2)) while thousands of peers come. It does not go on
// half: it ends, with a status that has it started again, as the kernel's killer of processes that are over a container's limit would end it, and whoever
// starts it again has what was there: the subnet, the peers, and now the new ones. Others notice nothing. The lab has a limit of its own in place
// of a container's, since a test cannot count on having control groups of memory.
func TestMemoryThatIsRefused(t *testing.T) {
	parallel(t)
	const atOnce, most = 1000, 30_000 // peers
	l := up(t, lab.Spec{NetworkConfig: []byte(`{"Network":"10.0.0.0/8","SubnetLen":24,"SubnetMin":"10.42.0.0","SubnetMax":"10.42.255.0","Backend":{"Type":"udp"}}`)})
	n, other := l.Node(1), l.Node(2)
	reach(t, await.Patience, n.Pods[0], other.Pods[0], 4)
	before := current(t, n)
	var was unix.Rlimit
	if err := unix.Prlimit(before.PID, unix.RLIMIT_DATA, nil, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(before.PID, unix.RLIMIT_DATA, &unix.Rlimit{Cur: dataOf(t, before.PID), Max: was.Max}, nil); err != nil {
		t.Fatal(err)
	}
	var granted struct{ ID string }
	if err := etcd(t, l.Store, "/v3/lease/grant", map[string]any{"TTL": "3600"}, &granted); err != nil {
		t.Fatal(err)
	}
	// Each takes memory on the way in, and stays. How many it takes depends on what the heap has to spare.
	come := 0
	for ended := n.Daemon.Exited(); ended != nil; {
		if come == most {
			t.Fatalf("it goes on with %d peers and %d bytes of data\n%s", come, dataOf(t, before.PID), n.Daemon.LogTail(10))
		}
		if err := putPeers(t, l.Store, come, atOnce, granted.ID, n.Net.MTU); err != nil {
			t.Fatal(err)
		}
		come += atOnce
		await.Within(t, 2*await.Patience, "it knows them, or it has ended", func() error {
			select {
			case <-ended:
				ended = nil
				return nil
			default:
			}
			s, err := ask[statusJSON](t.Context(), n, "status")
			if err == nil && s.Peers != come+1 {
				err = fmt.Errorf("%d peers, want %d", s.Peers, come+1)
			}
			return err
		})
	}
	t.Logf("%d peers were too many", come)
	// Go's runtime ends a program that gets no memory with status 2. Its words differ, since any allocation may be the one.
	var exit *exec.ExitError
	if err := n.Daemon.ExitError(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("it ended with %v, want exit status 2\n%s", err, n.Daemon.LogTail(10))
	}
	all := func(n *lab.Node) {
		t.Helper()
		status(t, n, 2*await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Peers != come+1 {
				return fmt.Errorf("%d peers, ready: %v %q", s.Peers, s.Ready, s.NotReady)
			}
			return nil
		})
	}
	all(other)
	if err := n.Start(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	all(n)
	reach(t, await.Patience, n.Pods[0], other.Pods[0], 4)
	reach(t, await.Patience, other.Pods[0], n.Pods[0], 4)
	if now := current(t, n); now.Lease == nil || !now.Lease.Held || now.Lease.Subnet != before.Lease.Subnet || now.Alarm != "" {
		t.Errorf("lease %+v, was %+v; alarm %q", now.Lease, before.Lease, now.Alarm)
	}
}

// dataOf is what counts for RLIMIT_DATA, in bytes: private memory that a process may write to (proc_pid_status(5), VmData).
func dataOf(t *testing.T, pid int) uint64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[0] == "VmData:" {
			kib, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("process %d has no VmData:\n%s", pid, b)
	return 0
}
