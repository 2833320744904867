package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/netns"
	"weft/test/traffic"
)

// restartCase is a backend with a firewall in which it has its rules.
type restartCase struct {
	backend string
	firewall
	// kernel says that the kernel carries the packets, so that none is lost and nothing at all is written by a
	// start.
	kernel bool
}

// restartCases are those of make test; with WEFT_LONG each backend has each firewall.
func restartCases() (cases []restartCase, restarts int) {
	all := firewalls()
	backends := []string{"host-gw", "vxlan", "udp"}
	for i, b := range backends {
		for j, f := range all {
			if os.Getenv("WEFT_LONG") != "" || j == []int{0, 1, 0}[i] {
				cases = append(cases, restartCase{b, f, b != "udp"})
			}
		}
	}
	if os.Getenv("WEFT_LONG") != "" {
		return cases, 20
	}
	return cases, 5
}

// A node's weftd is stopped and killed in turns, and started again, and then others take its place while it
// runs. A connection of a pod that is masqueraded goes on, and no rule is missing. Where the kernel carries
// the packets, none between pods is lost, and the start writes no route, no entry and no address.
func TestRulesOutliveRestarts(t *testing.T) {
	parallel(t)
	netns.Programs(t, "ip:iproute2", "iptables-legacy:iptables", "iptables-nft:iptables", "nft:nftables")
	cases, restarts := restartCases()
	for _, c := range cases {
		t.Run(c.backend+", "+c.name, func(t *testing.T) {
			if os.Getenv("WEFT_LONG") == "" { // nine labs side by side would be too slow for their packets
				t.Parallel()
			}
			config := fmt.Sprintf(`{%s"Network":"10.42.0.0/16","Backend":{"Type":%q}}`, c.key, c.backend)
			l := up(t, lab.Spec{NetworkConfig: json.RawMessage(config),
				WeftdArgs: []string{"--ip-masq", "--ip-blackhole-route"}})
			n := l.Node(1)
			if c.hint != "true" {
				sh(t, n.Host, c.hint)
				if err := n.Restart(await.Context(t, await.Patience)); err != nil {
					t.Fatal(lab.Explain(err))
				}
			}
			rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace && r.Rules.Firewall == c.name })
			a, b := n.Pods[0], l.Node(2).Pods[0]
			reach(t, await.Patience, a, b, 4)
			reach(t, await.Patience, b, a, 4)

			talk := talkOutside(t, l, a)
			flows := []*traffic.Flow{flowOf(t, a, b), flowOf(t, b, a)}
			for i := range restarts {
				restartOnce(t, n, c, []unix.Signal{unix.SIGTERM, unix.SIGKILL}[i%2])
				talk.goesOn(t, 10)
			}
			for range 2 { // the second one by a program that was itself executed in another one's place
				upgradeOnce(t, n, c)
				talk.goesOn(t, 10)
			}
			for _, f := range flows {
				if r := f.Stop(); c.kernel && r.Lost > 0 || r.Duplicated > 0 {
					t.Errorf("%s, want none lost", r)
				}
			}
		})
	}
}

// restartOnce ends the weftd of n and starts it again, and compares what it finds and leaves.
func restartOnce(t *testing.T, n *lab.Node, c restartCase, sig unix.Signal) {
	t.Helper()
	replacedOnce(t, n, c, unix.SignalName(sig)+" and start", func() {
		d := n.Daemon
		if err := d.Signal(sig); err != nil {
			t.Fatal(err)
		}
		<-d.Exited()
		if err := n.Start(await.Context(t, await.Patience)); err != nil {
			t.Fatal(lab.Explain(err))
		}
	})
}

// upgradeOnce has the weftd of n execute its program again.
func upgradeOnce(t *testing.T, n *lab.Node, c restartCase) {
	t.Helper()
	replacedOnce(t, n, c, "upgrade", func() {
		if out, errs, err := weft(t, n, "upgrade"); err != nil {
			t.Fatalf("weft upgrade: %v\n%s%s", err, out, errs)
		}
		status(t, n, await.Patience, func(s statusJSON) error {
			if s.PID != n.Daemon.PID() || !s.Ready || s.Lease == nil || !s.Lease.Held || !s.Backend.InPlace {
				return fmt.Errorf("pid %d, started %d; ready %v %q, lease %+v, in place %v", s.PID, n.Daemon.PID(),
					s.Ready, s.NotReady, s.Lease, s.Backend.InPlace)
			}
			return nil
		})
	})
}

// replacedOnce compares what a weftd finds and leaves that takes the place of another.
func replacedOnce(t *testing.T, n *lab.Node, c restartCase, how string, replace func()) {
	t.Helper()
	before := markedRules(t, n, c.firewall)
	stopWatching := watchKernel(t, n, c)
	replace()
	rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace })
	if what := stopWatching(); c.kernel && what != "" {
		t.Errorf("%s: written to the kernel:\n%s", how, what)
	}
	after := markedRules(t, n, c.firewall)
	for rule := range before {
		if !after[rule] {
			t.Errorf("%s: %q is gone", how, rule)
		}
	}
	if len(after) != len(before) || len(before) == 0 {
		t.Errorf("%s: %d rules and chains, before %d", how, len(after), len(before))
	}
}

// markedRules lists what a firewall has of ours, without counters.
func markedRules(t *testing.T, n *lab.Node, f firewall) map[string]bool {
	t.Helper()
	rules := map[string]bool{}
	for line := range ownLines(sh(t, n.Host, f.list)) {
		rules[line] = true
	}
	return rules
}

// watchKernel writes down the changes of links, addresses, routes, neighbours and rules in a node's namespace
// that a start could make, until it is told to end; then it returns them.
func watchKernel(t *testing.T, n *lab.Node, c restartCase) (stop func() string) {
	t.Helper()
	if !c.kernel {
		return func() string { return "" }
	}
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "ip"), filepath.Join(dir, "fdb"), filepath.Join(dir, "nft")}
	script := fmt.Sprintf(
		`ip -o monitor link address route neigh > %s 2>&1 & echo $!; bridge monitor fdb > %s 2>&1 & echo $!; nft monitor > %s 2>&1 & echo $!`, files[0], files[1], files[2])
	pids := strings.Fields(sh(t, n.Host, script))
	// A mark of our own shows that they follow.
	marks := 0
	mark := func() {
		t.Helper()
		marks++
		tag := fmt.Sprintf("192.0.2.%d", marks)
		sh(t, n.Host, fmt.Sprintf("ip route add blackhole %s; ip route del blackhole %s; nft add table ip "+
			"mark%d; nft delete table ip mark%d; "+
			"bridge fdb add 02:00:00:00:00:0%d dev eth0 self; bridge fdb del 02:00:00:00:00:0%d dev eth0 self", tag,
			tag, marks, marks, marks, marks))
	}
	seen := func(words ...string) error {
		for i, file := range files {
			b, err := os.ReadFile(file)
			if err != nil || !strings.Contains(string(b), words[i]) {
				return fmt.Errorf("%s does not have %q: %v", file, words[i], err)
			}
		}
		return nil
	}
	await.OK(t, "the changes are followed", func() error {
		if marks < 9 {
			mark()
		}
		return seen("192.0.2.", "02:00:00:00:00:0", "table ip mark")
	})
	return func() string {
		t.Helper()
		sh(t, n.Host, "ip route add blackhole 192.0.2.99; ip route del blackhole 192.0.2.99; nft add table ip "+
			"last; nft delete table ip last; "+
			"bridge fdb add 02:00:00:00:00:99 dev eth0 self; bridge fdb del 02:00:00:00:00:99 dev eth0 self")
		await.OK(t, "all changes are seen", func() error {
			return seen("192.0.2.99", "02:00:00:00:00:99", "table ip last")
		})
		for _, pid := range pids {
			number, err := strconv.Atoi(pid)
			if err == nil {
				err = unix.Kill(number, unix.SIGTERM)
			}
			if err != nil {
				t.Errorf("end process %q: %v", pid, err)
			}
		}
		var changes strings.Builder
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if oursByRight(line) && !strings.Contains(line, "inet weft") && !strings.Contains(line, "flannel-ipv") {
					changes.WriteString(line)
				}
			}
		}
		return changes.String()
	}
}

// oursByRight reports whether a change that was seen is of something that weftd keeps: by its address, its
// name, or its being permanent. An entry that the kernel learns changes its state by itself, and the test
// makes marks.
func oursByRight(line string) bool {
	about := regexp.MustCompile(`(?i)\b10\.42\.|flannel|weft|PERMANENT`)
	itself := regexp.MustCompile(
		`(REACHABLE|STALE|DELAY|PROBE|FAILED|INCOMPLETE|NOARP)\s*$|proto kernel|02:00:00:00:00:|^# new generation`)
	return about.MatchString(line) && !itself.MatchString(line)
}

// talkOutside has a pod talk by TCP to a host outside of the overlay, which sees the node's address.
func talkOutside(t *testing.T, l *lab.Lab, from *lab.Pod) *talking {
	t.Helper()
	h := newcomer(t, l, 77)
	k, seen := talkTo(t, from, h, netip.MustParseAddrPort("198.18.0.77:7778"), 8, time.Millisecond)
	if seen != from.Node.Underlay4 {
		t.Fatalf("%s is seen as %v, want the node's %v", from.Name, seen, from.Node.Underlay4)
	}
	return k
}
