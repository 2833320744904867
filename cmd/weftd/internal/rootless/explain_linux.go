package rootless

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Remedies for /dev/net/tun.
var (
	errNoAccess = errors.New("permission denied: it is not this user's to open; udev's default is 0666, " +
		"which harms nobody, since a device needs rights over a network namespace: as root: chmod 0666 " +
		"/dev/net/tun, and where nothing like udev does so at each start, a rule or a line in tmpfiles.d")
	errNoTUN = errors.New("it does not exist: as root: modprobe tun, and a line tun in " +
		"/etc/modules-load.d/tun.conf; a container has to be given the device (--device /dev/net/tun)")
	errDeviceGroup = errors.New("operation not permitted: the control group of this container or unit forbids " +
		"the device: give it the device (--device /dev/net/tun, DeviceAllow=/dev/net/tun rw)")
)

// host is what the kernel allows of user namespaces. A value that is not there is "".
type host struct {
	maxUser, cloneUser, appArmor string
}

func readHost() host {
	read := func(name string) string {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	return host{
		maxUser: read("user/max_user_namespaces"), cloneUser: read("kernel/unprivileged_userns_clone"),
		appArmor: read("kernel/apparmor_restrict_unprivileged_userns"),
	}
}

// ReceiveBuffer says how small the buffer is that the kernel gives the overlay's sockets without root; "" if
// it is large enough.
func ReceiveBuffer() string {
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if n, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil && n < enoughBuffer {
		return fmt.Sprintf("net.core.rmem_max is %d: bursts that are larger are lost where many peers send at "+
			"once; as root: sysctl -w net.core.rmem_max=%d", n, enoughBuffer)
	}
	return ""
}

// enoughBuffer is what weftd asks for as root, in bytes (docs/performance.md).
const enoughBuffer = 7 << 20

// obstacle is what of the host's settings keeps an ordinary user from user namespaces, and the remedy; "" for
// nothing.
func (h host) obstacle() string {
	switch {
	case h.maxUser == "0":
		return "user.max_user_namespaces is 0, so that nobody makes user namespaces: as root: sysctl -w " +
			"user.max_user_namespaces=15000, and the same in /etc/sysctl.d"
	case h.cloneUser == "0":
		return "kernel.unprivileged_userns_clone is 0, so that only root makes user namespaces: as root: sysctl " +
			"-w kernel.unprivileged_userns_clone=1, and the same in /etc/sysctl.d"
	case h.appArmor == "1":
		return "kernel.apparmor_restrict_unprivileged_userns is 1, so that AppArmor gives programs without a " +
			"profile no rights in a user namespace: " +
			"as root: weft's profile (docs/rootless.md), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return ""
}

// explain says why the namespace could not be entered, from what the tool or the trial said and from the
// host's settings.
func (w way) explain(said string, h host) error {
	what := "no user namespace can be had"
	if w.tool == "nsenter" {
		what = "the namespace cannot be entered"
	}
	refused := strings.Contains(said, "not permitted") || strings.Contains(said, "No space left") ||
		strings.Contains(said, "write failed")
	switch why := h.obstacle(); {
	case strings.Contains(said, "/dev/net/tun"), strings.Contains(said, errNotRoot.Error()):
		return errors.New(said)
	case w.tool == "unshare" && refused && why != "":
		return fmt.Errorf("%s: %s (%s)", what, why, said)
	case w.tool == "unshare" && strings.Contains(said, "No space left"):
		return fmt.Errorf("%s: this user has as many as user.max_user_namespaces allows, or they are nested too "+
			"deep (%s)", what, said)
	case w.tool == "nsenter" && refused && strings.HasPrefix(said, "nsenter:"):
		return fmt.Errorf("%s: its user namespace is another user's, or weftd was started inside of it: start "+
			"weftd as the user who made it, outside of it (%s)", what, said)
	}
	return fmt.Errorf("%s: %s", what, said)
}
