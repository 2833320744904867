package podtun

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// errNoRights is of a user namespace in which neither this user nor its root can do anything for us.
var errNoRights = errors.New("this user has no rights in the pod's user namespace, being not root there, " +
	"and its root cannot be had: " +
	"name a pod whose root is this user (unshare -Urn; podman without --userns; RootlessKit)")

// notBelow is said where the kernel does not tell the user namespace.
const notBelow = "its user namespace is neither this process's own nor one below that: run this outside of " +
	"user namespaces, as the user who made the pod's"

// capable reports whether this process may change the network of its user namespace.
func capable() bool {
	now := cap.GetProc()
	admin, err := now.GetFlag(cap.Effective, cap.NET_ADMIN)
	enters, also := now.GetFlag(cap.Effective, cap.SYS_ADMIN)
	return admin && enters || errors.Join(err, also) != nil // what is done shows it
}

// facts are what whyNot goes by.
type facts struct {
	own      bool // the user namespace is the one that this process is in
	euid     int
	owner    uint32 // who made the user namespace; valid with known
	known    bool
	appArmor string // kernel.apparmor_restrict_unprivileged_userns
}

// whyNot says why nsenter could not go into a user namespace, and what to do.
func whyNot(user *os.File) string {
	f := facts{euid: os.Geteuid()}
	if here, err := os.Stat("/proc/self/ns/user"); err == nil {
		if there, err := user.Stat(); err == nil {
			f.own = os.SameFile(here, there)
		}
	}
	owner, err := unix.IoctlGetUint32(int(user.Fd()), unix.NS_GET_OWNER_UID)
	f.owner, f.known = owner, err == nil
	text, _ := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	f.appArmor = strings.TrimSpace(string(text))
	return f.why()
}

func (f facts) why() string {
	switch {
	case f.own && f.euid != 0:
		return "it has no user namespace of its own, so that it is root's: run this as root, for root's weftd, " +
			"or make one with unshare -Urn"
	case f.own:
		return "this process lacks CAP_SYS_ADMIN, by which one enters a network namespace"
	case f.known && int(f.owner) != f.euid:
		return fmt.Sprintf("its user namespace is user %d's: run this as that user, for a weftd of that user's",
			f.owner)
	case f.appArmor == "1":
		return "kernel.apparmor_restrict_unprivileged_userns is 1, so that AppArmor gives programs without a " +
			"profile no rights in a user namespace: " +
			"as root: weft's profile (docs/rootless.md), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return "the kernel refuses this user's own user namespace: a security module may forbid it (the kernel's " +
		"log has a line of its, as dmesg shows)"
}
