package overlay

import (
	"bufio"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"weft/test/lab"
	"weft/test/lab/netns"
	"weft/test/lab/probe"
	"weft/test/lab/session"
)

// slirpBed is what an ordinary user has on the two hosts of rung Slirp: a network namespace on each, which
// RootlessKit has made.
type slirpBed struct {
	spaces []*netns.Namespace
	roots  []int // RootlessKit's processes, whose descendants carry packets
}

func (u *slirpBed) close() {
	for _, n := range u.spaces {
		n.Close()
	}
}

// pids are the processes that carry packets.
func (u *slirpBed) pids() (all []int) {
	for _, root := range u.roots {
		all = append(all, descendants(root)...)
	}
	return all
}

// slirpMTU is that of the vxlan devices.
const slirpMTU = 1450

// raiseSlirp joins namespaces that RootlessKit makes by the kernel's vxlan, whose datagrams go by slirp4netns
// and by RootlessKit's forwarding of a port, as rootless Kubernetes in containers has it.
func (b *testbed) raiseSlirp() error {
	var faults []error
	if os.Geteuid() != 0 {
		faults = append(faults, errors.New("it needs root, who makes hosts for an ordinary user"))
	}
	for _, tool := range []string{"setpriv:util-linux", "rootlesskit:rootlesskit", "slirp4netns:slirp4netns",
		"newuidmap:uidmap", "ip:iproute2", "bridge:iproute2"} {
		name, pkg, _ := strings.Cut(tool, ":")
		if _, err := exec.LookPath(name); err != nil {
			faults = append(faults, fmt.Errorf("%w: apt-get install %s", err, pkg))
		}
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	b.slirp, b.mtu = &slirpBed{}, slirpMTU
	for i, n := range b.lab.Nodes() {
		addr := netip.AddrFrom4([4]byte{10, 42, 0, byte(n.Index)})
		script := fmt.Sprintf(`ip link add vxlan0 type vxlan id 1 dstport 8472 nolearning dev tap0
			ip link set vxlan0 mtu %d up
			ip address add %s/24 dev vxlan0
			bridge fdb append 00:00:00:00:00:00 dev vxlan0 dst %s
			readlink /proc/self/ns/net
			exec sleep infinity`, slirpMTU, addr, b.lab.Nodes()[1-i].Underlay4)
		ns, err := b.slirp.space(n, script)
		if err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		e := probe.Endpoint{Name: ns.Name(), NS: ns, Addr: addr}
		if i == 0 {
			b.from = e
		} else {
			b.to = e
		}
	}
	return nil
}

// space has a user of n run a script in a namespace of RootlessKit's. The script first prints what /proc
// calls its network namespace, and stays.
func (u *slirpBed) space(n *lab.Node, script string) (*netns.Namespace, error) {
	if err := session.Open(n.Host); err != nil {
		return nil, err
	}
	cmd := session.Command(session.Ada(), session.Options{SetUID: true}, "rootlesskit", "--net=slirp4netns",
		"--mtu=1500", "--disable-host-loopback", "--copy-up=/etc", "--port-driver=builtin",
		"--publish=0.0.0.0:8472:8472/udp", "sh", "-euc", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(n.Dir, "space.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	if err := n.NS.Start(cmd); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%v: %w, %w: %s", cmd.Args, err, cmd.Wait(), said)
	}
	go func() { _ = cmd.Wait() }() // ends when the lab is closed
	// The process sees the ids of its own PID namespace; we find it by the inode that it says that its network
	// namespace has.
	found, err := holding(strings.TrimSpace(line), cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	ns, err := netns.Of(n.Name+"-space", found)
	if err != nil {
		return nil, err
	}
	u.spaces, u.roots = append(u.spaces, ns), append(u.roots, cmd.Process.Pid)
	return ns, nil
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
