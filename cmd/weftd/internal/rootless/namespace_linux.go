package rootless

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"weft/cmd/internal/options"
	"weft/routing/ownthread"
)

// target is a network namespace that somebody made, and the user namespace that it belongs to.
type target struct {
	net, user int  // descriptors
	ours      bool // the user namespace is the one that this process is in
	pid       int  // a process in it; 0 if none was named
}

// way is how the target is entered.
func (t target) way() way {
	return way{tool: "nsenter", args: []string{"--preserve-credentials"}, word: wordJoin, user: t.user,
		net: t.net, pid: t.pid}
}

func (t target) close() {
	_ = unix.Close(t.net) // descriptors that were only looked at
	_ = unix.Close(t.user)
}

// find opens the namespace that word names: the id of a process, or a path.
func find(word string) (t target, err error) {
	file := word
	if pid, bad := strconv.Atoi(word); bad == nil {
		t.pid, file = pid, fmt.Sprintf("/proc/%d/ns/net", pid)
	}
	t.net, err = unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) && t.pid != 0:
		return t, fmt.Errorf("there is no process %d: name one that runs in the network namespace (podman "+
			"inspect --format {{.State.Pid}} NAME; RootlessKit writes its child's into child_pid in --state-dir)",
			t.pid)
	case errors.Is(err, fs.ErrNotExist):
		return t, fmt.Errorf("%w: name the file of a network namespace, such as /run/netns/NAME, or the id of a "+
			"process in it", err)
	case errors.Is(err, fs.ErrPermission) && t.pid != 0:
		return t, fmt.Errorf("process %d is somebody else's (%s): name one of your own", t.pid,
			ownerOf(filepath.Dir(filepath.Dir(file))))
	case errors.Is(err, fs.ErrPermission):
		return t, fmt.Errorf("%w: it is somebody else's (%s)", err, ownerOf(file))
	case err != nil:
		return t, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(t.net)
		}
	}()
	if kind, err := unix.IoctlRetInt(t.net, unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		return t, fmt.Errorf("%s is no network namespace: ip netns makes one at /run/netns/NAME, and each "+
			"process has one at /proc/PID/ns/net", file)
	}
	if same(t.net, "/proc/self/ns/net") {
		if t.pid != 0 {
			return t, fmt.Errorf("process %d is in the network namespace that weftd is started in: name one in a "+
				"namespace of its own (unshare -Urn, rootless containers)", t.pid)
		}
		return t, errors.New("it is the network namespace that weftd is started in: name another one, or leave " +
			"the flag out")
	}
	if t.user, err = unix.IoctlRetInt(t.net, unix.NS_GET_USERNS); err != nil {
		return t, fmt.Errorf("its user namespace is not this user's to enter (%w): weftd has to be started by "+
			"the user who made it, outside of it", err)
	}
	unix.CloseOnExec(t.user)
	t.ours = same(t.user, "/proc/self/ns/user")
	if err := t.safe(); err != nil {
		return t, errors.Join(err, unix.Close(t.user))
	}
	return t, nil
}

// safe refuses root the user namespace of another user: weftd would be root to this host's files there still,
// and whoever owns the namespace has the right to trace what runs in it, and so to be root.
func (t target) safe() error {
	if t.ours || os.Geteuid() != 0 {
		return nil // nsenter enters a user's own alone
	}
	owner, err := unix.IoctlGetUint32(t.user, unix.NS_GET_OWNER_UID)
	if err != nil {
		return fmt.Errorf("whose its user namespace is is not known (NS_GET_OWNER_UID: %w)", err)
	}
	if owner != 0 {
		return fmt.Errorf("its user namespace is user %d's, who could do in there with root's weftd as he likes: "+
			"start weftd as that user", owner)
	}
	return nil
}

// ownerOf says to whom a file belongs, for people.
func ownerOf(file string) string {
	st, err := stat(file)
	if err != nil {
		return "its owner is not known"
	}
	return fmt.Sprint("user ", st.Uid)
}

func stat(file string) (st unix.Stat_t, err error) {
	err = unix.Stat(file, &st)
	return st, err
}

// same reports whether a descriptor and a file are of one namespace.
func same(fd int, file string) bool {
	var a unix.Stat_t
	b, err := stat(file)
	return err == nil && unix.Fstat(fd, &a) == nil && a.Dev == b.Dev && a.Ino == b.Ino
}

// hasRights reports whether this process may change the network namespace that it is in.
func hasRights() bool {
	if !capable() {
		return false
	}
	net, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // what is done shows it
	}
	defer func() { _ = unix.Close(net) }() // only looked at
	user, err := unix.IoctlRetInt(net, unix.NS_GET_USERNS)
	if err != nil {
		return !errors.Is(err, unix.EPERM) // it belongs to a user namespace above ours
	}
	defer func() { _ = unix.Close(user) }()
	return same(user, "/proc/self/ns/user")
}

// capable reports whether CAP_NET_ADMIN is in effect.
func capable() bool {
	on, err := cap.GetProc().GetFlag(cap.Effective, cap.NET_ADMIN)
	return on || err != nil // what is done shows it
}

// direct is the place for a namespace that this process has rights over as it is.
func (t target) direct(word string) (options.Place, error) {
	if err := ownthread.In(t.net, func() error { return nil }); err != nil {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: %s", err, whyNotEntered(capable()))
		}
		return options.Place{}, fmt.Errorf("--tun-netns %s: %w", word, err)
	}
	return t.place(word), nil
}

// whyNotEntered is why a process that may change its own network namespace, or may not, cannot enter another
// one of its user namespace.
func whyNotEntered(admin bool) string {
	if admin {
		return "that takes CAP_SYS_ADMIN besides CAP_NET_ADMIN: give it to weftd (in its unit " +
			"CapabilityBoundingSet=, and RestrictNamespaces=no; in a container --cap-add SYS_ADMIN)"
	}
	return "it is root's; an ordinary user names a namespace of its own (unshare -Urn, rootless containers)"
}

func (t target) place(word string) options.Place {
	p := options.Place{Elsewhere: true, FD: t.net, User: !hasRights(), PID: t.pid}
	if t.pid == 0 {
		p.Path = word
	}
	return p
}
