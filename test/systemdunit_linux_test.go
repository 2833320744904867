package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/systemd"
	"weft/test/netns"
	"weft/test/traffic"
)

// unitName is the shipped unit's.
const unitName = "weftd.service"

// unit is a node whose weftd a systemd runs, by the shipped unit.
type unit struct {
	*systemd.Machine
	node *lab.Node
}

// underSystemd stops the weftd of n and has a systemd in n run the shipped unit.
func underSystemd(t *testing.T, n *lab.Node) *unit {
	t.Helper()
	netns.Root(t, "systemd wants control groups of its own")
	netns.Programs(t, "/usr/lib/systemd/systemd:systemd")
	shipped, err := os.ReadFile("../cmd/weftd/deploy/weftd.service")
	if err != nil {
		t.Fatal(err)
	}
	var env strings.Builder
	// the unit's own directories count
	skip := []string{"cache-dir", "control-socket", "subnet-file", "holder-timeout"}
	for _, arg := range n.Daemon.Args() {
		k, v, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !slices.Contains(skip, k) {
			fmt.Fprintf(&env, "WEFTD_%s=%s\n", strings.ToUpper(strings.ReplaceAll(k, "-", "_")), v)
		}
	}
	if err := n.Stop(await.Context(t, await.Patience)); err != nil {
		t.Fatal(lab.Explain(err))
	}
	dir, err := os.MkdirTemp("", "weft-unit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	m, err := systemd.Boot(n.Host, systemd.Options{
		Dir: dir, Units: []string{unitName},
		Files: map[string]string{
			"/etc/systemd/system/" + unitName: string(shipped),
			// There is no journal.
			"/etc/systemd/system/" + unitName +
				".d/log.conf": "[Service]\nStandardOutput=append:/var/log/weftd.log\nStandardError=append:/var/log/weftd.log\n",
			"/etc/weft/weftd.env": env.String(),
		},
		Binds: map[string]string{"/usr/local/bin/weftd": command(t, "weftd"),
			"/usr/local/bin/weft": command(t, "weft"), "/var/lib/weft": n.CacheDir},
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &unit{m, n}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := m.Log()
			own, _ := os.ReadFile(m.Path("/var/log/weftd.log"))
			t.Logf("systemd's log:\n%s\nweftd's:\n%s", log, own)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// runs waits until weftd is ready, and is the main process, other than before, with as many descriptors in
// the store. It returns the process and their number.
func (u *unit) runs(t *testing.T, before, stored int) (pid, now int) {
	t.Helper()
	await.OK(t, "weftd under systemd", func() error {
		p, err := u.Show(t.Context(), unitName, "ActiveState", "MainPID", "NFileDescriptorStore")
		if err != nil {
			return err
		}
		pid, _ = strconv.Atoi(p["MainPID"])
		now, _ = strconv.Atoi(p["NFileDescriptorStore"])
		if p["ActiveState"] != "active" || pid == 0 || pid == before || now == 0 || stored > 0 && now != stored {
			return fmt.Errorf("%v, want a process other than %d and %d descriptors", p, before, stored)
		}
		return u.node.Ready(t.Context())
	})
	return pid, now
}

// do runs a program in the unit's machine.
func (u *unit) do(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := u.Command(await.Context(t, await.Patience), name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inUnit runs a script with the files that weftd sees.
func (u *unit) inUnit(t *testing.T, pid int, script string) string {
	t.Helper()
	return u.do(t, "nsenter", "-t", strconv.Itoa(pid), "-m", "--", "sh", "-ec", script)
}

// unitFits is how long nobody may have read for the TUN's queue to have held everything, 1,000 packets.
const unitFits = 900 * time.Millisecond

// unitInHands is how many packets a weftd that is killed may take with it, since it had read and not yet
// written them.
const unitInHands = 16

// A systemd runs the shipped unit. What is sent while weftd is restarted, is killed, and is upgraded,
// arrives; a directly attached pod stays; systemd keeps what it was given each time, and has weftd for its
// main process, however that came to be. A stop leaves no process and no descriptor. What the unit takes from
// weftd is not there, and what weftd needs is.
func TestTheShippedUnitUnderSystemd(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: json.RawMessage(ipv4Only)})
	n, far := l.Node(2), l.Node(1).Pods[0]
	reach(t, await.Patience, n.Pods[0], far, 4)
	u := underSystemd(t, n)
	pid, _ := u.runs(t, 0, 0)
	reach(t, await.Patience, n.Pods[0], far, 4)
	pod := u.attach(t)
	pod.reaches(t, far.V4)
	stored := u.settled(t)
	t.Logf("systemd keeps %d descriptors", stored)
	u.isConfined(t, pid)

	systemctl := func(args ...string) func() { return func() { u.do(t, "systemctl", args...) } }
	kill := systemctl("kill", "--signal=KILL", "--kill-whom=main", unitName)
	for _, c := range []struct {
		name string
		most int // packets that may be lost
		do   func()
	}{
		{"restart", 0, systemctl("restart", unitName)},
		{"restart", 0, systemctl("restart", unitName)},
		{"kill", unitInHands, kill},
		{"upgrade", 0, func() { u.do(t, "weft", "upgrade") }},
		{"kill after an upgrade", unitInHands, kill},
		{"restart", 0, systemctl("restart", unitName)},
	} {
		u.replaced(t, c.name, c.most, n.Pods[0], far, func() {
			c.do()
			if before := pid; c.name == "upgrade" { // which executes the new program in the same process
				if pid, _ = u.runs(t, 0, stored); pid != before {
					t.Errorf("after an upgrade the main process is %d, and was %d", pid, before)
				}
				return
			}
			pid, _ = u.runs(t, pid, stored)
		})
		pod.reaches(t, far.V4)
	}
	u.do(t, "systemctl", "reload", unitName)
	if now, _ := u.runs(t, 0, stored); now != pid {
		t.Errorf("after a reload the main process is %d, and was %d", now, pid)
	}

	u.do(t, "systemctl", "stop", unitName)
	p, err := u.Show(t.Context(), unitName, "ActiveState", "Result", "MainPID", "NFileDescriptorStore")
	if want := map[string]string{"ActiveState": "inactive", "Result": "success", "MainPID": "0",
		"NFileDescriptorStore": "0"}; err != nil || !maps.Equal(p, want) {
		t.Errorf("after a stop %v %v, want %v", p, err, want)
	}
	if left := u.do(t, "sh", "-c", "cat /sys/fs/cgroup/system.slice/"+unitName+
		"/cgroup.procs 2>/dev/null; pgrep -a weft || :"); left != "" {
		t.Errorf("after a stop there is\n%s", left)
	}
	log, err := u.Log()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log) {
		// a line that systemd does not understand, words of a process that it does not listen to
		if strings.Contains(line, unitName+":") && (strings.Contains(line, "ignoring") ||
			strings.Contains(line, "Got notification message")) {
			t.Error(line)
		}
	}
}

// settled waits until systemd has been told everything, and returns how many descriptors it keeps.
func (u *unit) settled(t *testing.T) (stored int) {
	t.Helper()
	await.OK(t, "descriptors in systemd's store", func() error {
		var s struct {
			Custody struct {
				By                                         string
				Items, Descriptors, Ports, PortDescriptors int
			}
		}
		out, err := u.Command(t.Context(), "weft", "status", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &s)
		}
		if err != nil {
			return err
		}
		_, stored = u.runs(t, 0, 0)
		// With all of them is the index.
		c := s.Custody
		if want := c.Descriptors + c.PortDescriptors + 1; c.Items != 1 || c.Ports < 2 ||
			c.By != "service manager" || stored != want {
			return fmt.Errorf("%d are kept, want %d of %+v", stored, want, c)
		}
		return nil
	})
	return stored
}

// isConfined looks at what the unit leaves of weftd's rights and of its files.
func (u *unit) isConfined(t *testing.T, pid int) {
	t.Helper()
	status := u.do(t, "cat", fmt.Sprintf("/proc/%d/status", pid))
	for _, want := range []string{"CapBnd:\t0000000000003404", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		// DAC_READ_SEARCH, NET_BIND_SERVICE, NET_ADMIN, NET_RAW
		if !strings.Contains(status, want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	// A mount that is not written to has test -w fail for everybody, whatever he may.
	for _, path := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory",
		"/proc/sysrq-trigger", "/sys/kernel", "/etc", "/usr", "/var/log", "/sys/fs/cgroup"} {
		u.inUnit(t, pid, "! test -w "+path)
	}
	for _, path := range []string{"/proc/sys/net/ipv4/ip_forward", "/var/lib/weft", "/run/weft", "/run/flannel",
		"/dev/net/tun"} {
		u.inUnit(t, pid, "test -w "+path)
	}
}

// replaced counts what is lost of packets both ways while weftd is replaced. The queues hold what is sent
// meanwhile, unless that takes longer than they are long.
func (u *unit) replaced(t *testing.T, name string, most int, a, b *lab.Pod, again func()) {
	t.Helper()
	lost, longest := 0, time.Duration(0)
	flows := []*traffic.Flow{flowOf(t, a, b), flowOf(t, b, a)}
	again()
	for _, f := range flows {
		f.Passes(200)
		r := f.Stop()
		lost, longest = lost+r.Lost, max(longest, r.LongestGap)
		if r.Duplicated > 0 || r.Reordered > 0 {
			t.Errorf("%s: %s", name, r)
		}
	}
	if lost > most && longest < unitFits {
		t.Errorf("%s: %d packets are lost of what fits into the queues, want at most %d", name, lost, most)
	}
}

// attached is a process in the unit's machine that has a network of its own, and is attached to the overlay
// directly.
type attached struct {
	u   *unit
	pid string
}

func (u *unit) attach(t *testing.T) attached {
	t.Helper()
	pid := strings.TrimSpace(u.do(t, "unshare", "--net", "sh", "-c", "sleep 1000000 >/dev/null 2>&1 & echo $!"))
	addr := u.node.Pods[0].V4.As4() // nobody has reserved those of the pods on the bridge
	addr[3] = 200
	u.do(t, "weft", "attach", "--pid", pid, "--address", netip.AddrFrom4(addr).String())
	return attached{u, pid}
}

// reaches waits for an answer from an address.
func (a attached) reaches(t *testing.T, to netip.Addr) {
	t.Helper()
	await.OK(t, "the attached pod's way", func() error {
		_, err := a.u.Command(t.Context(), "nsenter", "-t", a.pid, "-n", "--", "ping", "-c1", "-W1", to.String())
		return err
	})
}
