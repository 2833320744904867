package test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// TestAWeftdWithoutDescriptors has a whole weftd get no descriptor more while it carries packets. They go on,
// and it is ready, with what the store had meanwhile, when the limit is raised.
func TestAWeftdWithoutDescriptors(t *testing.T) {
	l := shared(t, ipv4Only)
	n := l.Node(1)
	a, b := n.Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	pid := n.Daemon.PID()
	limit := func(soft uint64) {
		t.Helper()
		var was unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
			t.Fatal(err)
		}
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: was.Max}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limit(was.Cur) }) // the lab is others' too
	limit(atRest(t, pid))
	reach(t, await.Patience, a, b, 4)
	reach(t, await.Patience, b, a, 4)
	const more = prefix + "/subnets/10.42.250.0-24"
	put(t, l.Store, more, `{"PublicIP":"198.18.0.250","PublicIPv6":null}`, 24*time.Hour)
	// An address of somebody's on its TUN makes it compare everything, and it can open nothing for that.
	if _, err := n.Command(t.Context(), "ip", "address", "add", "192.0.2.77/32", "dev", "flannel0"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(8 * time.Second) // longer than the time between two looks
	reach(t, await.Patience, a, b, 4)
	limit(was.Cur)
	knows(t, n, await.Patience, "10.42.250.0/24", true)
	del(t, l.Store, more)
	status(t, n, await.Patience, func(s statusJSON) error {
		if !s.Ready || s.PID != pid || s.Lease == nil || !s.Lease.Held || !s.Store.Connected {
			return fmt.Errorf("ready %v %q, lease %+v, store %+v", s.Ready, s.NotReady, s.Lease, s.Store)
		}
		return nil
	})
	reach(t, await.Patience, a, b, 4)
}

// recordAt is the record of a subnet in the store.
func recordAt(t *testing.T, l *lab.Lab, subnet string) pair {
	t.Helper()
	key := prefix + "/subnets/" + strings.ReplaceAll(subnet, "/", "-")
	for _, kv := range list(t, l.Store, prefix+"/subnets/") {
		if kv.key == key {
			return kv
		}
	}
	t.Fatalf("there is no record %s", key)
	return pair{}
}

// atRest is the number that the next descriptor of a process has when nothing passing is open.
func atRest(t *testing.T, pid int) uint64 {
	t.Helper()
	least, began := lowestFree(t, pid), time.Now()
	await.Within(t, await.Patience, "descriptors come to rest", func() error {
		least = min(least, lowestFree(t, pid))
		if time.Since(began) < 2*time.Second {
			return fmt.Errorf("%d is free", least)
		}
		return nil
	})
	return least
}

// lowestFree is the number that the next descriptor of a process would have.
func lowestFree(t *testing.T, pid int) (n uint64) {
	t.Helper()
	for ; ; n++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, n)); errors.Is(err, os.ErrNotExist) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
