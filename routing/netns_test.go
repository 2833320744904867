package routing

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inNamespace moves the test to a network namespace of its own, which vanishes
// with the thread. Goroutines that the test starts are not in it; Kernel is.
func inNamespace(t *testing.T) *Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces and needs root: run it with sudo, or in a user namespace with unshare -rn")
	}
	for _, tool := range []string{"ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: apt-get install iproute2", tool)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Fatalf("%v: load the module tun, or mknod /dev/net/tun c 10 200", err)
	}
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	k, err := OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	ip(t, "link set lo up")
	return k
}

// ip runs the command of that name in the test's namespace.
func ip(t *testing.T, args string, a ...any) string {
	t.Helper()
	out, err := tryIP(fmt.Sprintf(args, a...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryIP(args string) (string, error) {
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("ip %s: %w\n%s", args, err, out)
	}
	return string(out), err
}

// etherLink makes one end of a veth pair with addresses; kernels without module dummy have veth.
func etherLink(t *testing.T, name string, mtu int, addrs ...string) {
	t.Helper()
	ip(t, "link add %s type veth peer name %s-far", name, name)
	ip(t, "link set %s-far mtu %d up", name, mtu)
	ip(t, "link set %s mtu %d up", name, mtu)
	for _, a := range addrs {
		opt := ""
		if strings.Contains(a, ":") {
			opt = " nodad"
		}
		ip(t, "addr add %s dev %s%s", a, name, opt)
	}
}

// eventually waits until f finds nothing wrong.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
