package podtun

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/podport"
	"weft/test/await"
	"weft/test/netns"
)

func TestInterface(t *testing.T) {
	host, pod := netns.New(t, "host"), netns.New(t, "pod")
	s := Spec{
		Netns: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pod.FD()), Name: "eth0", MTU: 1400,
		Addresses: []netip.Addr{netip.MustParseAddr("10.9.3.2"), netip.MustParseAddr("fd00::2")},
		Routes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("0.0.0.0/0"),
			netip.MustParsePrefix("::/0")},
	}
	made := func(s Spec) (tun *os.File, err error) {
		err = host.Do(func() error { tun, err = Make(s); return err })
		return tun, err
	}
	tun, err := made(s)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := podport.InspectTUN(int(tun.Fd())); err != nil || name != "eth0" {
		t.Errorf("for weftd it is %s, %v", name, err)
	}
	if err := Check(s); err != nil {
		t.Error(err)
	}
	links, err := host.Netlink().LinkList()
	if err != nil || len(links) != 1 {
		t.Errorf("the host has %v, %v", links, err)
	}
	l, err := pod.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if got := l.Attrs().TxQLen; got != queueLen {
		t.Errorf("%d packets wait for weftd, want %d", got, queueLen)
	}
	if have, err := addressesIn(pod, l); err != nil || len(have) != 2 {
		t.Errorf("the pod has %v, %v: no address that it may not send from", have, err)
	}
	if again, err := made(s); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second one: %v, %v", again, err)
	}
	if links, err := host.Netlink().LinkList(); err != nil || len(links) != 1 {
		t.Errorf("what failed left %v, %v", links, err)
	}

	for what, damage := range map[string]func() error{
		"MTU is 1300": func() error { return pod.Netlink().LinkSetMTU(l, 1300) },
		"fd00::2": func() error {
			return pod.Netlink().AddrDel(l, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("fd00::2/128"))})
		},
		"10.9.0.0/16": func() error { return pod.Netlink().RouteDel(route(l, s.Routes[0])) },
		"/0":          func() error { return pod.Netlink().RouteDel(route(l, s.Routes[2])) },
	} {
		if err := damage(); err != nil {
			t.Fatal(what, err)
		}
		if err := Check(s); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
	for range 2 {
		if err := Remove(s.Netns, "eth0"); err != nil {
			t.Error(err)
		}
	}
	if err := Check(s); err == nil {
		t.Error("found what is gone")
	}
	if err := Remove(s.Netns, "lo"); err == nil || !strings.Contains(err.Error(), "no TUN") {
		t.Errorf("what is no TUN: %v", err)
	}
	if err := Remove("/nowhere/ns", "eth0"); err != nil {
		t.Errorf("of a namespace that is gone: %v", err)
	}
	if _, err := made(Spec{Netns: "/nowhere/ns"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in a namespace that is gone: %v", err)
	}
	_ = tun.Close()

	// The descriptor does not keep the namespace alive: the device goes with it, and a read says so.
	if tun, err = made(s); err != nil {
		t.Fatal(err)
	}
	defer tun.Close()
	if err := unix.SetNonblock(int(tun.Fd()), true); err != nil {
		t.Fatal(err)
	}
	pod.Close()
	await.OK(t, "the device is gone", func() error {
		if _, err := unix.Read(int(tun.Fd()), make([]byte, 2000)); !errors.Is(err, unix.EBADFD) &&
			!errors.Is(err, unix.EIO) {
			return fmt.Errorf("read: %v", err)
		}
		return nil
	})
}

func addressesIn(pod *netns.Namespace, l netlink.Link) (out []netip.Addr, err error) {
	err = pod.Do(func() error { out, err = addresses(l); return err })
	return out, err
}

// Who owns a user namespace may trace what runs in it, so that root's helper does not go into that of another
// user.
func TestRootStaysOutOfOthersUserNamespaces(t *testing.T) {
	netns.Root(t, "only root can start a process as another user")
	cmd := exec.Command("unshare", "-Urn", "sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	link := func(pid int) string {
		name, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		return name
	}
	await.OK(t, "it has namespaces of its own", func() error {
		if there := link(cmd.Process.Pid); there == "" || there == link(os.Getpid()) {
			return errors.New("it has not")
		}
		return nil
	})
	task := Task{What: TaskRemove, Spec: Spec{Netns: fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid),
		Name: "eth0"}}
	if _, err := task.enter(t.Context(), []string{"/bin/true"}); !errors.Is(err, errNotEntered) ||
		!strings.Contains(err.Error(), "user 65534's") {
		t.Errorf("entered as root: %v", err)
	}
}

func TestWhatToDoAboutTheDevice(t *testing.T) {
	for err, want := range map[error]string{unix.EACCES: "chmod 0666", unix.EPERM: "control group",
		unix.ENOENT: "module", unix.ENODEV: "module", unix.EMFILE: "descriptors"} {
		if got := remedy(err); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestWhyANamespaceIsNotEntered(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]facts{
		"unshare -Urn":    {own: true, euid: 7},
		"CAP_SYS_ADMIN":   {own: true},
		"user 8's":        {euid: 7, owner: 8, known: true, appArmor: "1"},
		"apparmor":        {euid: 7, owner: 7, known: true, appArmor: "1"},
		"security module": {euid: 7, owner: 7, known: true, appArmor: "0"},
		"kernel's":        {euid: 7},
	} {
		if got := f.why(); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q in it", f, got, want)
		}
	}
}

// What the process inside says becomes an error, and what nsenter says another one.
func TestWhatIsSaidInside(t *testing.T) {
	t.Parallel()
	user, err := os.Open("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	failed := errors.New("exit status 1")
	for said, want := range map[string]error{
		"weft: " + insideSays + errNoRights.Error() + "\n": errNoRights,
		insideSays + "weft0: " + existsText:                fs.ErrExist,
		"nsenter: reassociate to namespace failed\n":       errNotEntered,
	} {
		if got := whyInside(failed, said, user); !errors.Is(got, want) {
			t.Errorf("%q: %v, want %v", said, got, want)
		}
	}
	if got := whyInside(failed, insideSays+"MTU 9: invalid argument", user); got == nil ||
		got.Error() != "MTU 9: invalid argument" {
		t.Errorf("%v", got)
	}
}
