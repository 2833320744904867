// Package netns gives tests network namespaces of their own, and is the only place where a test skips.
//
// A package whose tests need namespaces calls Main in its TestMain. Where the user is not root, Main starts
// the test binary again as root of new user, mount, PID and network namespaces. A test then asks for what it
// needs:
//
//	netns.New    a host: a namespace that Do, Start and Dial enter
//	netns.Enter  the test's own thread moves into a new namespace; IP, Command and Try run programs there
//	netns.Need   only the right to make namespaces, and programs
//	netns.TUN    the same, and TUN devices
//	netns.Root   root of the machine, which a user namespace is not
//
// Where that is not to be had, a newcomer's test skips and says why. With WEFT_TEST=strict, which make test
// and CI set, it fails.
package netns

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// roleEnv tells a process that Main has started it inside of new namespaces. Its value names the user
// outside.
const roleEnv = "WEFT_TEST_ISOLATED"

// Main runs the tests of a package and ends the process with their status. A TestMain that has more to do
// calls Isolate instead.
func Main(m *testing.M) {
	Isolate()
	os.Exit(m.Run())
}

// Isolate returns at once where this process is root. For another user it runs the test binary again as root
// of new namespaces, and ends this process with its status. Where the kernel refuses new user namespaces
// Isolate returns, and tests that need one skip.
func Isolate() {
	findSystemPrograms()
	switch exe, err := os.Executable(); {
	case err != nil || os.Getenv(roleEnv) == "" && os.Geteuid() == 0:
	case os.Getenv(roleEnv) == "":
		outside(exe)
	case os.Getpid() == 1:
		inside(exe)
	} // any other process is the tests' own, or a program that they start from their binary
}

// findSystemPrograms completes $PATH, which for an ordinary user often lacks the directories of ip and nft.
func findSystemPrograms() {
	if path := os.Getenv("PATH"); !strings.Contains(path, "sbin") {
		_ = os.Setenv("PATH", path+":/usr/sbin:/sbin")
	}
}

// outside starts the first process of the new namespaces, and ends with its status. It returns where the
// kernel refuses them.
func outside(exe string) {
	runtime.LockOSThread() // the parent-death signal is tied to the thread
	defer runtime.UnlockOSThread()
	cmd := again(exe)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", roleEnv, os.Geteuid()))
	netns.Isolate(cmd)
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	if cmd.Start() != nil {
		return
	}
	_ = cmd.Wait() // it says no more than the status
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		os.Exit(code)
	}
	os.Exit(1) // a signal
}

// inside is the first process of the new namespaces. It waits for the tests and for orphans, as an init does,
// so that the tests are an ordinary process.
func inside(exe string) {
	err := errors.Join(netns.OwnMounts(), ownRun(), loopback())
	status := 1
	if err == nil {
		status, err = netns.First(again(exe))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "netns: the new namespaces:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

func again(exe string) *exec.Cmd {
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// ownRun mounts a /run in which programs may write their locks.
func ownRun() error { return unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "") }

// loopback sets the loopback device of this thread's namespace up.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// Namespace is a host of a test.
type Namespace = netns.Namespace

// Need skips the test where this process cannot make network namespaces, or lacks one of the programs. Each
// program is given as "program" or, where its Debian package has another name, "program:package".
func Need(t testing.TB, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "the kernel refuses user namespaces to an ordinary user here, and this test makes network "+
			"namespaces: run it as root")
	}
	Programs(t, programs...)
}

// TUN is Need for a test that makes TUN devices.
func TUN(t testing.TB, programs ...string) {
	t.Helper()
	Need(t, programs...)
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		missing(t, fmt.Sprintf("%v: chmod 666 /dev/net/tun, as udev does, or run the test as root", err))
	case err != nil:
		missing(t, fmt.Sprintf("%v: load the module tun, or mknod /dev/net/tun c 10 200", err))
	default:
		_ = f.Close()
	}
}

// Programs skips the test where a program is missing.
func Programs(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		name, pkg, other := strings.Cut(p, ":")
		if !other {
			pkg = name
		}
		if _, err := exec.LookPath(name); err != nil {
			missing(t, fmt.Sprintf("%v: apt-get install %s", err, pkg))
		}
	}
}

// IsRoot reports whether the process is root of the machine, and not of a user namespace of Main's.
func IsRoot() bool { return os.Geteuid() == 0 && os.Getenv(roleEnv) == "" }

// Root skips the test where the process is not root of the machine. why says what root of a user namespace
// may not do.
func Root(t testing.TB, why string) {
	t.Helper()
	if !IsRoot() {
		missing(t, why+": run the test as root")
	}
}

// Long skips a test that takes minutes or tens of nodes where go test runs all tests. It runs where -run
// names tests, and with WEFT_TEST=strict.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("WEFT_TEST") != "strict" && flag.Lookup("test.run").Value.String() == "" {
		t.Skip("it takes minutes or tens of nodes: name it with -run, or set WEFT_TEST=strict")
	}
}

// Skip skips the test for a reason of its own, or fails it with WEFT_TEST=strict. The reason says what is
// missing and how to get it.
func Skip(t testing.TB, reason string) {
	t.Helper()
	missing(t, reason)
}

func missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("WEFT_TEST") == "strict" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// New returns a new namespace with its loopback device up. It is closed when the test ends.
func New(t testing.TB, name string) *Namespace {
	t.Helper()
	Need(t)
	n, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// Enter makes the test parallel and moves its thread to a new network namespace with its loopback device up,
// which vanishes with the test. Goroutines and subtests that the test starts run on other threads, outside.
func Enter(t testing.TB, programs ...string) {
	t.Helper()
	Need(t, append([]string{"ip:iproute2"}, programs...)...)
	if p, ok := t.(*testing.T); ok {
		p.Parallel()
	}
	EnterAlone(t, programs...)
}

// EnterAlone is Enter for a test that changes or measures the whole process, such as its environment. No
// other test runs meanwhile.
func EnterAlone(t testing.TB, programs ...string) {
	t.Helper()
	Need(t, append([]string{"ip:iproute2"}, programs...)...)
	runtime.LockOSThread() // never unlocked: the runtime ends the thread with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatalf("new mount namespace: %v", err)
	}
	// Programs of iptables-legacy fail while another namespace's holds the lock in /run.
	err := errors.Join(unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""), ownRun())
	if err != nil {
		t.Fatal(err)
	}
	Unshare(t)
}

// Beside returns the namespace of the calling thread as a host, which other goroutines can enter with Do.
func Beside(t testing.TB) *Namespace {
	t.Helper()
	n, err := netns.Of("beside", unix.Gettid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	mounts, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	defer mounts.Close()
	if err := n.Do(func() error { return unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS) }); err != nil {
		// for /run
		t.Fatal(err)
	}
	return n
}

// mark tells a test's namespaces from the machine's own.
const mark, marked = "/proc/sys/net/ipv4/ip_unprivileged_port_start", "1001"

// Unshare moves the calling thread, which the caller has locked, to a new namespace with its loopback device
// up.
func Unshare(t testing.TB) {
	t.Helper()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace: %v", err)
	}
	if err := errors.Join(os.WriteFile(mark, []byte(marked), 0), loopback()); err != nil {
		t.Fatal(err)
	}
}

// Inside returns an error unless the calling thread is in a namespace that Enter or Unshare made. What
// changes a namespace from a test asks it first, since a subtest runs on another thread and would change the
// machine.
func Inside() error {
	got, err := os.ReadFile(mark)
	if err != nil {
		return err
	}
	if string(got) != marked+"\n" {
		return errors.New("this thread is outside of the test's network namespace")
	}
	return nil
}
