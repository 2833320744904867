package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/test/await"
)

// IP runs the command of that name in the test's namespace, with words split at blanks.
func IP(t testing.TB, args string, a ...any) string {
	t.Helper()
	return Command(t, "ip", strings.Fields(fmt.Sprintf(args, a...))...)
}

// TryIP is IP with the error returned.
func TryIP(args string) (string, error) { return Try("ip", strings.Fields(args)...) }

// Command runs a program in the test's namespace and returns its standard output.
func Command(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := Try(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Try is Command with the error returned. It refuses to run outside of a test's namespace.
func Try(name string, args ...string) (string, error) {
	err := Inside()
	var out []byte
	if err == nil {
		out, err = exec.Command(name, args...).Output()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s%s", err, out, exit.Stderr)
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), err
}

// Script writes a program. The lock keeps parallel tests from forking meanwhile: their child would hold the
// file open for writing, and the kernel runs no such file.
func Script(t testing.TB, file, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// EtherLink makes one end of a veth pair with addresses; kernels without module dummy have veth.
func EtherLink(t testing.TB, name string, mtu int, addrs ...string) {
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
