package lab

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// userID is the id that a node's user has, in a user namespace of its own. Outside of that it is the id of
// whoever runs the lab, who for that needs no subordinate ids: one id is all that an ordinary user may map
// (user_namespaces(7)).
const userID = 1000

// tenant is the ordinary user of a node without root. A process in a user namespace below the lab's, with an
// id other than 0 there, has no capability over the node, whose namespace is the lab's; it may make
// namespaces of its own, as anybody may on a host.
type tenant struct {
	node  *Node
	first *exec.Cmd // in the user's user namespace, by which the others enter it
	all   []*exec.Cmd
	// tun is the id of a process in the namespace of the TUN.
	tun int
}

// newTenant begins the session of the node's user, and makes the namespace of its TUN, which becomes the
// node's Place.
func (n *Node) newTenant() error {
	for _, tool := range []string{"nsenter", "unshare", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("nodes without root need util-linux (apt-get install util-linux): %w", err)
		}
	}
	ids := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: userID, HostID: id, Size: 1}}
	}
	u := &tenant{node: n, first: exec.Command("sleep", "infinity")}
	u.first.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids(os.Geteuid()),
		GidMappings: ids(os.Getegid())}
	if err := u.start(u.first); err != nil {
		return fmt.Errorf("%s: make its user's namespace: %w", n.Name, err)
	}
	n.user = u
	if err := os.MkdirAll(u.runtimeDir(), 0o700); err != nil {
		return err
	}
	var err error
	n.Place, u.tun, err = u.space(n.Name + "-tun")
	return err
}

// start starts a process that stays until close.
func (u *tenant) start(cmd *exec.Cmd) error {
	if err := u.node.NS.Start(cmd); err != nil {
		return err
	}
	u.all = append(u.all, cmd)
	go func() { _ = cmd.Wait() }() // it ends when close kills it
	return nil
}

// close ends the session's processes, but for the node's weftd.
func (u *tenant) close() {
	for _, cmd := range u.all {
		_ = cmd.Process.Kill() // it may have ended
	}
}

func (u *tenant) runtimeDir() string { return filepath.Join(u.node.Dir, "run") }

// by is what stands before a program and its arguments so that the user runs it on the node, with files of
// the user's own. The process has the id of the program: each executes the next.
func (u *tenant) by() []string {
	return []string{"nsenter", "--user", "--preserve-credentials", "--target", strconv.Itoa(u.first.Process.Pid),
		"setpriv", "--no-new-privs",
		"env", "XDG_RUNTIME_DIR=" + u.runtimeDir(), "XDG_STATE_HOME=" + u.node.Dir}
}

// space makes a network namespace in a user namespace, as the user does with unshare. pid is a process in it.
func (u *tenant) space(name string) (h *Host, pid int, err error) {
	argv := append(u.by(), "unshare", "--user", "--map-root-user", "--net", "sh", "-c",
		"echo there; exec sleep infinity")
	cmd := exec.Command(argv[0], argv[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := u.node.NS.Start(cmd); err != nil {
		return nil, 0, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "there\n" {
		return nil, 0, fmt.Errorf("%s: a user's namespace: %w: %s", name, errors.Join(err, cmd.Wait()),
			strings.TrimSpace(said.String()))
	}
	u.all = append(u.all, cmd)
	go func() { _ = cmd.Wait() }() // it ends when close kills it
	ns, err := netns.Of(name, cmd.Process.Pid)
	if err != nil {
		return nil, 0, err
	}
	return u.node.lab.adopt(name, ns), cmd.Process.Pid, nil
}
