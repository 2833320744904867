// Package nstest moves tests of routing's packages to network namespaces of their own, and runs programs there.
package nstest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/internal/kernel"
	"weft/test/await"
	"weft/test/netns"
)

// In moves the test to a network namespace of its own, which vanishes
// with the thread. Goroutines that the test starts are not in it; Kernel is.
func In(t *testing.T) *kernel.Kernel {
	t.Helper()
	netns.TUN(t, "ip:iproute2")
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with the test's goroutine
	k := New(t)
	IP(t, "link set lo up")
	return k
}

// mark and marked tell a test's namespaces from the machine's own.
const mark, marked = "/proc/sys/net/ipv4/ip_unprivileged_port_start", "1001"

// New moves the thread to a new network namespace.
func New(t *testing.T) *kernel.Kernel {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	if err := os.WriteFile(mark, []byte(marked), 0); err != nil {
		t.Fatal(err)
	}
	k, err := kernel.OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// IP runs the command of that name in the test's namespace.
func IP(t *testing.T, args string, a ...any) string {
	t.Helper()
	out, err := TryIP(fmt.Sprintf(args, a...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryIP is IP with the error returned.
func TryIP(args string) (string, error) { return Try("ip", strings.Fields(args)...) }

// Command runs a program in the test's namespace.
func Command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := Try(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try runs a program in a test's namespace, that of the calling thread. A subtest runs on another
// thread than its test, and would change the machine.
func Try(name string, args ...string) (string, error) {
	if got, err := os.ReadFile(mark); err != nil || strings.TrimSpace(string(got)) != marked {
		return "", fmt.Errorf("%s %q would run outside of the test's network namespace", name, args)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// EtherLink makes one end of a veth pair with addresses; kernels without module dummy have veth.
func EtherLink(t *testing.T, name string, mtu int, addrs ...string) {
	t.Helper()
	IP(t, "link add %s type veth peer name %s-far", name, name)
	IP(t, "link set %s-far mtu %d up", name, mtu)
	IP(t, "link set %s mtu %d up", name, mtu)
	for _, a := range addrs {
		opt := ""
		if strings.Contains(a, ":") {
			opt = " nodad"
		}
		IP(t, "addr add %s dev %s%s", a, name, opt)
	}
	for _, end := range []string{name, name + "-far"} { // the carrier comes a moment after the link is up
		await.OK(t, end+" up", func() error {
			l, err := netlink.LinkByName(end)
			if err == nil && l.Attrs().OperState != netlink.OperUp {
				err = fmt.Errorf("it is %s", l.Attrs().OperState)
			}
			return err
		})
	}
}
