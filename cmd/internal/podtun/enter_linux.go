package podtun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"weft/routing/ownthread"
)

// Task is something to be done for a pod's interface.
type Task struct {
	// What is one of the words below.
	What string `json:"what"`
	// Spec is what the interface is to be. Of TaskRemove only Netns and Name count.
	Spec Spec `json:"spec"`
	// Networks, unless there are none, take the place of Spec.Routes: everything leads into the overlay, but
	// where the namespace has another default route in that family, only these.
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// The words of Task.What.
const (
	TaskMake   = "make"
	TaskRemove = "remove"
	TaskCheck  = "check"
)

// Descriptors of the process that does a task inside.
const insideSocket, insideUser, insideNet, insideProgram = 3, 4, 5, 6

// Do does a task, and returns the TUN if the task is to make it. Where this process lacks the rights, since
// it is an ordinary user's or the pod's namespace belongs to another user namespace, another process does it
// there: nsenter executes helper, a command of this program that calls Inside. Go's threads cannot enter a
// user namespace.
func Do(ctx context.Context, t Task, helper []string) (*os.File, error) {
	tun, err := t.do(t.Spec.Netns, Make)
	if !errors.Is(err, unix.EPERM) || len(helper) == 0 {
		return tun, err
	}
	tun, inside := t.enter(ctx, helper)
	if inside != nil && errors.Is(inside, errNotEntered) {
		return nil, fmt.Errorf("%w, nor by its user namespace: %w", err, inside)
	}
	return tun, inside
}

func (t Task) do(netns string, make func(Spec) (*os.File, error)) (*os.File, error) {
	s := t.Spec
	s.Netns = netns
	switch t.What {
	case TaskRemove:
		return nil, Remove(netns, s.Name)
	case TaskCheck, TaskMake:
	default:
		return nil, fmt.Errorf("%q is no task", t.What)
	}
	if len(t.Networks) > 0 {
		var err error
		if s.Routes, err = routesBeside(netns, s.Name, t.Networks); err != nil {
			return nil, err
		}
	}
	if t.What == TaskCheck {
		return nil, Check(s)
	}
	return make(s)
}

// routesBeside are the routes that suit a namespace: all of a family, but where another interface than name
// has its default route.
func routesBeside(netns, name string, networks []netip.Prefix) (out []netip.Prefix, err error) {
	ns, err := os.Open(netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer ns.Close()
	var others []netip.Addr // the unspecified address of each family with a default route
	err = ownthread.In(int(ns.Fd()), func() error {
		own := -1
		if l, err := netlink.LinkByName(name); err == nil {
			own = l.Attrs().Index
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		for _, r := range routes {
			if r.Dst != nil && r.LinkIndex != own {
				if bits, _ := r.Dst.Mask.Size(); bits == 0 {
					a, _ := netip.AddrFromSlice(r.Dst.IP)
					others = append(others, a.Unmap())
				}
			}
		}
		return nil
	})
	for _, n := range networks {
		all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if n.Addr().Is6() {
			all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if slices.Contains(others, all.Addr()) {
			all = n
		}
		out = append(out, all)
	}
	return out, err
}

// errNotEntered says that nobody was able to do the task.
var errNotEntered = errors.New("it cannot be entered")

// as is who the process inside is.
type as string

const (
	asItself as = "--preserve-credentials" // the same user outside, which mostly is root inside
	// root inside, which is another user outside (podman's --userns=keep-id)
	asRoot as = "--setuid=0"
)

// enter has a process in the pod's user and network namespaces do the task.
func (t Task) enter(ctx context.Context, helper []string) (*os.File, error) {
	net, err := os.Open(t.Spec.Netns)
	if err != nil {
		return nil, fmt.Errorf("the pod's network namespace: %w", err)
	}
	defer net.Close()
	fd, err := unix.IoctlRetInt(int(net.Fd()), unix.NS_GET_USERNS)
	if err != nil {
		return nil, fmt.Errorf("%w: %s (NS_GET_USERNS: %w)", errNotEntered, notBelow, err)
	}
	user := os.NewFile(uintptr(fd), "user namespace")
	defer user.Close()
	if err := mayEnter(user); err != nil {
		return nil, err
	}
	tun, err := t.enterAs(ctx, asItself, helper, user, net)
	if errors.Is(err, errNoRights) {
		if tun, again := t.enterAs(ctx, asRoot, helper, user, net); !errors.Is(again, errNotEntered) {
			return tun, again
		}
		return nil, fmt.Errorf("%w: %w", errNotEntered, err)
	}
	return tun, err
}

func (t Task) enterAs(ctx context.Context, who as, helper []string, user, net *os.File) (*os.File, error) {
	// Root of the namespace may be a user who may not look into the directories that the program is in.
	opened, err := unix.Open(helper[0], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: this program: %w", errNotEntered, err)
	}
	program := os.NewFile(uintptr(opened), helper[0])
	defer program.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "socket"), os.NewFile(uintptr(pair[1]), "socket")
	defer ours.Close()
	text, err := json.Marshal(t)
	if err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	args := []string{fmt.Sprintf("--user=/proc/self/fd/%d", insideUser),
		fmt.Sprintf("--net=/proc/self/fd/%d", insideNet), string(who)}
	if who == asRoot {
		args = append(args, "--setgid=0")
	}
	args = append(append(args, "--", fmt.Sprintf("/proc/self/fd/%d", insideProgram)), helper[1:]...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &said
	cmd.ExtraFiles = []*os.File{theirs, user, net, program}
	err = cmd.Run()
	_ = theirs.Close() // the other process had a descriptor of its own
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%w without the program nsenter: install util-linux", errNotEntered)
	}
	if err != nil {
		return nil, whyInside(err, said.String(), user)
	}
	if t.What != TaskMake {
		return nil, nil
	}
	return receive(int(ours.Fd()))
}

// whyInside is the error of a process inside, or of nsenter, that said why on its standard error.
func whyInside(err error, said string, user *os.File) error {
	said = strings.TrimSpace(said)
	_, rest, inside := strings.Cut(said, insideSays) // the program's name is before it
	switch {
	case !inside:
		return fmt.Errorf("%w: %s (nsenter: %w: %s)", errNotEntered, whyNot(user), err, said)
	case strings.Contains(rest, errNoRights.Error()):
		return errNoRights
	case strings.Contains(rest, existsText):
		return fmt.Errorf("%s: %w", rest, fs.ErrExist)
	}
	return errors.New(rest)
}

// mayEnter refuses root the user namespace of another user. The process inside would still be root to the
// files of this host, and whoever owns the namespace has the right to trace whatever runs in it. Root has no
// need for it either, unless something else is denied.
func mayEnter(user *os.File) error {
	if os.Geteuid() != 0 {
		return nil // a user's own, or one that nsenter cannot enter
	}
	owner, err := unix.IoctlGetUint32(int(user.Fd()), unix.NS_GET_OWNER_UID)
	if err != nil {
		return fmt.Errorf("%w: whose its user namespace is is not known (NS_GET_OWNER_UID: %w)", errNotEntered, err)
	}
	if owner != 0 {
		return fmt.Errorf("%w: it is user %d's, who could do with root's process there as he likes: run this as "+
			"that user", errNotEntered, owner)
	}
	return nil
}

// insideSays is in front of the error of the process inside, to be told from nsenter's own; existsText is in
// the one that stands for fs.ErrExist.
const insideSays, existsText = "in the pod's namespaces: ", "the pod has an interface of that name"

// receive takes the TUN that the process inside has sent before it ended.
func receive(socket int) (*os.File, error) {
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), rights, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("the TUN did not come: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "/dev/net/tun"), nil
		}
	}
	return nil, errors.New("the TUN did not come")
}

// Inside does the task that Do hands to a process in the pod's namespaces. Its error is for stderr.
func Inside(stdin io.Reader) error {
	err := inside(stdin)
	if err != nil {
		return fmt.Errorf("%s%w", insideSays, err)
	}
	return nil
}

func inside(stdin io.Reader) error {
	var t Task
	if err := json.NewDecoder(stdin).Decode(&t); err != nil {
		return err
	}
	if !capable() {
		return errNoRights
	}
	tun, err := t.do("/proc/self/ns/net", makeApart)
	if err != nil || tun == nil {
		return err
	}
	if err := unix.Sendmsg(insideSocket, []byte{0}, unix.UnixRights(int(tun.Fd())), nil, 0); err != nil {
		return errors.Join(fmt.Errorf("hand the TUN over: %w", err), Remove("/proc/self/ns/net", t.Spec.Name))
	}
	return nil
}

// makeApart is Make where the caller is in the pod's namespace itself: the TUN is opened in another one, made
// for that, which is what the descriptor keeps alive.
func makeApart(s Spec) (tun *os.File, err error) {
	own, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer own.Close()
	s.Netns = fmt.Sprintf("/proc/self/fd/%d", own.Fd())
	err = ownthread.InNew(func() (err error) {
		tun, err = Make(s)
		return err
	})
	return tun, err
}

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
