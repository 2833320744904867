package overlay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab"
	"weft/test/lab/netns"
	"weft/test/lab/probe"
	"weft/test/lab/session"
)

// rootlessBed is what an ordinary user has on the two hosts of a rung: a network namespace on each, in a user
// namespace of the user's own, and what joins them.
type rootlessBed struct {
	lab    *lab.Lab
	spaces []*netns.Namespace
	roots  []int // processes that carry packets, and whose descendants do
	// daemons are the weftds of the two hosts; none without weft.
	daemons []*lab.Daemon
}

func (u *rootlessBed) close() {
	for _, n := range u.spaces {
		n.Close()
	}
}

// pids are the processes that carry packets.
func (u *rootlessBed) pids() (all []int) {
	for _, root := range u.roots {
		all = append(all, descendants(root)...)
	}
	return all
}

// alive returns an error if a daemon has ended.
func (u *rootlessBed) alive() (err error) {
	for _, d := range u.daemons {
		if d.PID() == 0 {
			err = errors.Join(err, fmt.Errorf("%s ended: %s", d.Name, d.LogTail(20)))
		}
	}
	return err
}

// missingRootless says what a rung of an ordinary user's needs and is not here, or returns nil.
func missingRootless(r Rung) error {
	wanted := []string{"unshare:util-linux", "setpriv:util-linux"}
	if r.Name == Slirp {
		wanted = append(wanted, "rootlesskit:rootlesskit", "slirp4netns:slirp4netns", "newuidmap:uidmap",
			"ip:iproute2", "bridge:iproute2")
	}
	var faults []error
	if os.Geteuid() != 0 {
		faults = append(faults, errors.New("it needs root, who makes hosts for an ordinary user"))
	}
	for _, word := range wanted {
		name, pkg, _ := strings.Cut(word, ":")
		if _, err := exec.LookPath(name); err != nil {
			faults = append(faults, fmt.Errorf("%w: apt-get install %s", err, pkg))
		}
	}
	return errors.Join(faults...)
}

// raiseRootless puts what an ordinary user has on the hosts of the rung's lab.
func (b *testbed) raiseRootless(ctx context.Context, programs programs) error {
	u := &rootlessBed{lab: b.lab}
	b.rootless = u
	raise, files := u.raiseSlirp, []string(nil)
	if b.rung.Name == Rootless {
		raise = u.raiseWeftd
		files = []string{programs.weftd, filepath.Join(filepath.Dir(programs.weftd), "weft-etcd")}
	}
	for _, n := range u.lab.Nodes() {
		if err := session.Open(n.Host, files...); err != nil {
			return err
		}
	}
	if err := raise(); err != nil {
		return err
	}
	for i, n := range u.spaces {
		addr, mtu, err := overlayAddress(ctx, n)
		if err != nil {
			return errors.Join(err, u.alive())
		}
		e := probe.Endpoint{Name: n.Name(), NS: n, Addr: addr}
		if i == 0 {
			b.from, b.mtu = e, mtu
		} else {
			b.to, b.mtu = e, min(b.mtu, mtu)
		}
	}
	return nil
}

// space starts a program of the user's that prints the id of a process in the namespace that is measured, and
// stays.
func (u *rootlessBed) space(n *lab.Node, o session.Options, program string, args ...string) (pid int,
	err error) {
	cmd := session.Command(session.Ada(), o, program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	log, err := os.Create(filepath.Join(n.Dir, "space.log"))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := n.NS.Start(cmd); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return 0, fmt.Errorf("%s: %v: %w, %w: %s", n.Name, cmd.Args, err, cmd.Wait(), said)
	}
	go func() { _ = cmd.Wait() }() // ends when the lab is closed
	// The process sees the ids of its own PID namespace; we find it by the inode that it says that its network
	// namespace has.
	found, err := holding(strings.TrimSpace(line), cmd.Process.Pid)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", n.Name, err)
	}
	ns, err := netns.Of(n.Name+"-space", found)
	if err != nil {
		return 0, err
	}
	u.spaces = append(u.spaces, ns)
	return cmd.Process.Pid, nil
}

// holding returns a process that root descends to, root included, and that is in the network namespace whose
// link in /proc reads so.
func holding(link string, root int) (int, error) {
	for _, pid := range descendants(root) {
		if is, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && is == link {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("no descendant of process %d is in %s", root, link)
}

// descendants are a process and all that it and its children have started.
func descendants(pid int) []int {
	all := []int{pid}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, t := range tasks {
		text, _ := os.ReadFile(t)
		for word := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}

// sayAndStay prints what /proc calls the network namespace, and waits for ever.
const sayAndStay = "readlink /proc/self/ns/net; exec sleep infinity"

// raiseSlirp joins namespaces that RootlessKit makes by the kernel's vxlan, whose datagrams go by slirp4netns
// and by RootlessKit's forwarding of a port, as rootless Kubernetes in containers has it.
func (u *rootlessBed) raiseSlirp() error {
	for i, n := range u.lab.Nodes() {
		peer := u.lab.Nodes()[1-i].Underlay4
		script := fmt.Sprintf(`ip link add vxlan0 type vxlan id 1 dstport 8472 nolearning dev tap0
			ip link set vxlan0 mtu 1450 up
			ip address add 10.42.0.%d/24 dev vxlan0
			bridge fdb append 00:00:00:00:00:00 dev vxlan0 dst %s
			%s`, n.Index, peer, sayAndStay)
		pid, err := u.space(n, session.Options{SetUID: true}, "rootlesskit", "--net=slirp4netns", "--mtu=1500",
			"--disable-host-loopback", "--copy-up=/etc",
			"--port-driver=builtin", "--publish=0.0.0.0:8472:8472/udp", "sh", "-euc", script)
		if err != nil {
			return err
		}
		u.roots = append(u.roots, pid)
	}
	return nil
}

// raiseWeftd joins namespaces of unshare's by weftd.
func (u *rootlessBed) raiseWeftd() error {
	first := u.lab.Node(1)
	for _, n := range u.lab.Nodes() {
		pid, err := u.space(n, session.Options{}, "unshare", "--user", "--map-root-user", "--net", "sh", "-euc",
			sayAndStay)
		if err != nil {
			return err
		}
		inside, err := idInside(pid)
		if err != nil {
			return err
		}
		args := []string{"--rootless", "--tun-netns=" + inside, "--iface=eth0",
			fmt.Sprintf("--etcd-endpoints=http://%s:2379", first.Underlay4)}
		if n == first {
			config := filepath.Join(session.Bin, "net-conf.json")
			if err := n.Do(func() error { return os.WriteFile(config, u.lab.Spec.NetworkConfig, 0o644) }); err != nil {
				return err
			}
			args = append(args, "--embedded-etcd", fmt.Sprintf("--embedded-etcd-listen=%s:2379", n.Underlay4),
				"--embedded-etcd-insecure", "--net-config-path="+config)
		}
		argv := session.Argv(session.Ada(), session.Options{}, "weftd", args...)
		d := lab.NewDaemon(n.Host, n.Name+"'s weftd", filepath.Join(n.Dir, "weftd.log"), argv[0], argv[1:]...)
		if err := d.Start(); err != nil {
			return err
		}
		u.daemons = append(u.daemons, d)
		u.roots = append(u.roots, d.PID())
	}
	return nil
}

// idInside returns the id that a process has in its own PID namespace.
func idInside(pid int) (string, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			words := strings.Fields(ids)
			return words[len(words)-1], nil
		}
	}
	return "", fmt.Errorf("process %d has no NSpid", pid)
}

// overlayAddress waits until a namespace has an address of the overlay's, and returns it with its device's
// MTU.
func overlayAddress(ctx context.Context, n *netns.Namespace) (netip.Addr, int, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		links, err := n.Netlink().LinkList()
		for _, l := range links {
			addrs, _ := n.Netlink().AddrList(l, unix.AF_INET)
			for _, a := range addrs {
				if found, ok := netip.AddrFromSlice(a.IP.To4()); ok && overlayNetwork().Contains(found) {
					return found, l.Attrs().MTU, nil
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return netip.Addr{}, 0, fmt.Errorf("%s has no address in %s: %w", n.Name(), overlayNetwork(),
				errors.Join(err, context.Cause(ctx)))
		}
	}
}

// overlayNetwork is that of the lab's default configuration.
func overlayNetwork() netip.Prefix { return netip.MustParsePrefix("10.42.0.0/16") }
