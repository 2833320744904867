package rootless

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
	"weft/routing/ownthread"
)

// errNotRoot says that the user namespace gives us no rights.
var errNotRoot = errors.New("this user is not root in that user namespace, and so has no rights there " +
	"(podman's --userns=keep-id makes one like that): " +
	"name a process in one whose root is this user (unshare -Urn, podman without --userns, RootlessKit)")

// arrive is Enter after this program was executed in the user namespace.
func arrive(word string, cfg options.Config) (options.Place, error) {
	if !capable() {
		return options.Place{}, errNotRoot
	}
	if err := ownLock(cfg); err != nil {
		return options.Place{}, err
	}
	net, err := namespaceOf(word)
	if err != nil {
		return options.Place{}, err
	}
	if word == wordNew || cfg.Rootless.TUNNetns == "" { // this weftd made it, or an earlier one did
		return hold(net, cfg.CacheDir)
	}
	t := target{net: net}
	t.pid, _ = strconv.Atoi(cfg.Rootless.TUNNetns) // 0 for a path
	if err := ownthread.In(t.net, func() error { forward(); return nil }); err != nil {
		return options.Place{}, err
	}
	return t.direct(cfg.Rootless.TUNNetns)
}

// lockVariable names the file that iptables of the legacy flavour locks. Its own is root's.
const lockVariable = "XTABLES_LOCKFILE"

// ownLock has the iptables that weftd starts lock a file of this user's, beside the control socket.
func ownLock(cfg options.Config) error {
	if os.Getenv(lockVariable) != "" || cfg.ControlSocket == "" {
		return nil
	}
	return os.Setenv(lockVariable, filepath.Join(filepath.Dir(cfg.ControlSocket), "xtables.lock"))
}

// forward has the kernel forward between the TUN and the other links of the network namespace that this
// thread is in, as containers there and pods that go elsewhere by it need. The namespace is this user's
// alone. Where it is refused, the rules' notes say that it is missing.
func forward() {
	const dir = "/proc/sys/net/"
	if b, err := os.ReadFile(dir + "ipv6/conf/all/forwarding"); err == nil &&
		strings.TrimSpace(string(b)) == "0" {
		// A router hears no advertisements, by which it may have its way out, unless it is told to.
		files, _ := filepath.Glob(dir + "ipv6/conf/*/accept_ra") // no pattern of ours is malformed
		for _, file := range files {
			if b, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(b)) == "1" {
				_ = os.WriteFile(file, []byte("2"), 0)
			}
		}
	}
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		_ = os.WriteFile(dir+name, []byte("1"), 0)
	}
}

// namespaceOf returns the network namespace that the word is about.
func namespaceOf(word string) (net int, err error) {
	if word == wordNew {
		return make1()
	}
	return joined(word)
}

// joined reads the descriptor of the network namespace that was handed on, and closes that of the user
// namespace, in which this process is.
func joined(word string) (net int, err error) {
	numbers, ok := strings.CutPrefix(word, wordJoin+":")
	number, entered, has := strings.Cut(numbers, ":")
	net, err = strconv.Atoi(number)
	user := -1
	if has && err == nil {
		user, err = strconv.Atoi(entered)
	}
	if !ok || err != nil || net < 0 {
		return 0, fmt.Errorf("variable %s=%s is not for people to set: unset it", options.Inside, word)
	}
	unix.CloseOnExec(net)
	if kind, err := unix.IoctlRetInt(user, unix.NS_GET_NSTYPE); err == nil && kind == unix.CLONE_NEWUSER {
		_ = unix.Close(user) // it was for nsenter
	}
	return net, nil
}

// make1 makes a network namespace with a loopback interface that is up, and that forwards, and returns its
// descriptor.
func make1() (net int, err error) {
	err = ownthread.InNew(func() (err error) {
		if net, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			return fmt.Errorf("set the loopback interface up: %w", err)
		}
		forward()
		return nil
	})
	return net, err
}

// try looks whether weftd could work here.
func try(word string) error {
	if !capable() {
		return errNotRoot
	}
	net, err := namespaceOf(word)
	if err != nil {
		return err
	}
	return ownthread.In(net, tryTUN)
}

// tryTUN makes a TUN, which goes with its descriptor.
func tryTUN() error {
	const device = "/dev/net/tun"
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("open %s: %w", device, errNoAccess)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("open %s: %w", device, errNoTUN)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("open %s: %w", device, errDeviceGroup)
	case err != nil:
		return fmt.Errorf("open %s: %w", device, err)
	}
	defer func() { _ = unix.Close(fd) }() // and the device is gone
	r, err := unix.NewIfreq("wefttry%d")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return fmt.Errorf("make a TUN in the network namespace: %w", err)
	}
	return nil
}
