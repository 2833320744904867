package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// finding is what weft doctor --json says of one thing.
type finding struct{ ID, Verdict, Subject, Found, Cause, Remedy string }

func (f finding) String() string {
	return fmt.Sprintf("%s %s: %s: %s: %s; %s", f.ID, f.Verdict, f.Subject, f.Found, f.Cause, f.Remedy)
}

// examine runs weft doctor on a node, and returns what is not well.
func examine(t *testing.T, n *lab.Node, args ...string) (found []finding, err error) {
	t.Helper()
	began := time.Now()
	out, errs, _ := weft(t, n, append([]string{"doctor", "--json"}, args...)...) // its status says whether there are faults
	var report struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return nil, fmt.Errorf("weft doctor on %s: %w\n%s%s", n.Name, err, out, errs)
	}
	t.Logf("weft doctor on %s took %v", n.Name, time.Since(began).Round(10*time.Millisecond))
	for _, f := range report.Findings {
		if f.Verdict != "ok" && f.Verdict != "unknown" {
			found = append(found, f)
		}
	}
	return found, nil
}

// lacks is nil if doctor's check id says all of the texts of a fault, in one finding that has a remedy.
func lacks(what string, found []finding, id string, texts ...string) error {
	for _, f := range found {
		if f.ID == id && f.Remedy != "" && containsAll(f.String(), texts) {
			return nil
		}
	}
	return fmt.Errorf("%s: weft doctor's check %s does not say %q: %q", what, id, texts, found)
}

// named waits until weft doctor on a node says of a fault what lacks looks for: of an answer that was late it says so.
func named(t *testing.T, n *lab.Node, what string, args []string, id string, texts ...string) {
	t.Helper()
	await.OK(t, what, func() error {
		found, err := examine(t, n, args...)
		if err != nil {
			return err
		}
		return lacks(what, found, id, texts...)
	})
}

// between is a fault between the first node of a lab and another one.
type between struct {
	name string
	// do makes it. A rule of wire is one of nftables on the bridge of the underlay, in which {me} and {peer} are addresses.
	do   func(me, peer *lab.Node) error
	wire []string
	// answers, lossy and large are what weft peers says of the peer, likely and look parts of the cause and of what to look at.
	answers      string
	lossy, large bool
	likely, look string
	// here and there are doctor's checks that say more on the first node and on the peer, with a text of theirs.
	here, there [2]string
}

const (
	viaWay  = "UDP port 8285 is dropped on the way or by a host's firewall, or its weftd is stopped or frozen"
	itsSide = "what it sends arrives, and what this node sends does not"
	hostGo  = "its host is down, or the underlay does not lead there"
)

// betweenTwo lists them. host finds the lab's hosts once it is there.
func betweenTwo(t *testing.T, host func(name string) *lab.Host) []between {
	run := func(on func(me, peer *lab.Node) *lab.Host, line string) func(me, peer *lab.Node) error {
		return func(me, peer *lab.Node) error {
			text := strings.NewReplacer("{me}", me.Underlay4.String(), "{peer}", peer.Underlay4.String(), "{name}", peer.Name).Replace(line)
			_, err := on(me, peer).Command(t.Context(), "sh", "-ec", text)
			return err
		}
	}
	here := func(me, _ *lab.Node) *lab.Host { return me.Host }
	there := func(_, peer *lab.Node) *lab.Host { return peer.Host }
	onWire := func(_, _ *lab.Node) *lab.Host { return host("wire") }
	router := func(_, _ *lab.Node) *lab.Host { return host("node2") }
	const rejects = "sysctl -qw net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.send_redirects=0\n" +
		"iptables -I FORWARD -s {me} -d {peer} -p udp --dport 8285 -j REJECT --reject-with icmp-admin-prohibited\n" +
		"iptables -I FORWARD -s {peer} -d {me} -p udp --dport 8285 -j REJECT --reject-with icmp-admin-prohibited"
	return []between{
		{name: "the port is dropped on the way", wire: []string{"ip saddr {me} ip daddr {peer} drop", "ip saddr {peer} ip daddr {me} drop"}, answers: "no", likely: viaWay, look: "tcpdump -ni any udp port 8285"},
		{name: "the port is rejected on the way", do: func(me, peer *lab.Node) error {
			return errors.Join(run(router, rejects)(me, peer), run(here, "ip route add {peer} via 198.18.0.2")(me, peer), run(there, "ip route add {me} via 198.18.0.2")(me, peer))
		}, answers: "no", likely: "UDP port 8285 does not get there: ICMP from 198.18.0.2 says", look: "the rules and routes of 198.18.0.2"},
		{name: "the port is dropped by the peer's host", do: run(there, "iptables -A INPUT -p udp --dport 8285 -j DROP"), answers: "no", likely: itsSide, look: "iptables -S INPUT"},
		{name: "the port is rejected by the peer's host", do: run(there, "iptables -A INPUT -p udp --dport 8285 -j REJECT"), answers: "no", likely: "its host rejects UDP port 8285", look: "sport = :8285"},
		{name: "this host drops what leaves", do: run(here, "iptables -A OUTPUT -d {peer} -p udp --dport 8285 -j DROP"), answers: "no", likely: itsSide},
		{name: "this host drops what comes in", do: run(here, "iptables -A INPUT -s {peer} -p udp --dport 8285 -j DROP"), answers: "no", likely: viaWay},
		{name: "30 % are lost to the peer", wire: []string{"ip saddr {me} ip daddr {peer} numgen random mod 100 < 30 drop"}, answers: "yes", lossy: true, likely: "drops a part", look: "ethtool -S"},
		{name: "30 % are lost from the peer", wire: []string{"ip saddr {peer} ip daddr {me} numgen random mod 100 < 30 drop"}, answers: "yes", lossy: true, likely: "drops a part", look: "ethtool -S"},
		{name: "large packets are lost without ICMP", wire: []string{"ip daddr {peer} ip length > 1400 drop"}, answers: "yes", large: true, likely: "fragmentation needed", look: `"MTU":`},
		{name: "the peer's MTU is lowered", do: run(there, "ip link set eth0 mtu 1400"), answers: "yes", here: [2]string{"mtu", "the peer's overlay carries 1372 bytes, this node's 1472"}},
		{name: "the peer's link is down", do: run(there, "ip link set eth0 down"), answers: "no", likely: hostGo, look: "ip neigh show {peer}", there: [2]string{"interface", "ip link set eth0 up"}},
		{name: "the peer's host is gone", do: run(onWire, "ip link set {name} down"), answers: "no", likely: hostGo, look: "whether that machine runs"},
		{name: "the peer's daemon is stopped", do: func(_, peer *lab.Node) error { return peer.Stop(t.Context()) }, answers: "no", likely: "its weftd does not run", look: "systemctl status weftd",
			there: [2]string{"daemon", "weftd does not run here"}},
		{name: "the peer's daemon is frozen", do: func(_, peer *lab.Node) error { return peer.Daemon.Signal(unix.SIGSTOP) }, answers: "no", likely: "its weftd is stopped or frozen", look: "systemctl status weftd",
			there: [2]string{"daemon", "runs and does not answer"}},
		{name: "the peer is deaf", wire: []string{"ip daddr {peer} drop"}, answers: "no", likely: itsSide, look: "on that node"},
	}
}

// Every fault that there can be between two nodes is made, each at another peer of one node, all at once. That node says of each by itself what is
// so, with the likely cause and what to look at; and weft doctor says it when asked, here or there. Of the peer that is well it says nothing.
func TestFaultsBetweenNodes(t *testing.T) {
	crowd(t)
	const first = 3 // node 1 looks, and node 2 is well
	var l *lab.Lab
	host := func(name string) *lab.Host {
		h, err := l.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	faults := betweenTwo(t, host)
	l = up(t, lab.Spec{Nodes: first - 1 + len(faults), NetworkConfig: []byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":"socket"}}`)})
	me := l.Node(1)
	look := func() (map[string]probeSeen, error) {
		answer, err := ask[probesSeen](t.Context(), me, "peers")
		seen := map[string]probeSeen{}
		for _, p := range answer.Peers {
			for _, x := range p.Probes {
				seen[p.Name] = x
			}
		}
		return seen, err
	}
	healthy := func(p probeSeen) bool { return p.Answers == "yes" && !p.Lossy && !p.LargeLost && p.Likely == "" }
	await.OK(t, "all are well", func() error {
		seen, err := look()
		if err != nil {
			return err
		}
		for _, n := range l.Nodes()[1:] {
			if p := seen[n.Name]; !healthy(p) || p.PathMTU != 1472 {
				return fmt.Errorf("%s: %+v", n.Name, p)
			}
		}
		return nil
	})
	var rules, devices []string
	for i, f := range faults {
		peer := l.Node(first + i)
		devices = append(devices, peer.Name)
		for _, r := range f.wire {
			rules = append(rules, "udp dport 8285 "+strings.NewReplacer("{me}", me.Underlay4.String(), "{peer}", peer.Underlay4.String()).Replace(r))
		}
		if f.do != nil {
			if err := f.do(me, peer); err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
		}
	}
	sh(t, host("wire"), fmt.Sprintf("nft 'table netdev hole { chain c { type filter hook ingress devices = { node1, node2, %s } priority 0\n%s\n}\n}'", strings.Join(devices, ", "), strings.Join(rules, "\n")))

	began := time.Now()
	after := map[string]time.Duration{}
	await.Within(t, 3*await.Patience, "every fault is seen", func() error {
		seen, missing := look()
		for i, f := range faults {
			peer := l.Node(first + i)
			p := seen[peer.Name]
			text := strings.ReplaceAll(f.look, "{peer}", peer.Underlay4.String())
			if p.Answers != f.answers || p.Lossy != f.lossy || p.LargeLost != f.large || !strings.Contains(p.Likely, f.likely) || !strings.Contains(p.Look, text) || f.likely != "" && p.Look == "" {
				missing = errors.Join(missing, fmt.Errorf("%s: %+v", f.name, p))
			} else if _, ok := after[f.name]; !ok {
				after[f.name] = time.Since(began)
			}
		}
		if p := seen["node2"]; !healthy(p) {
			missing = errors.Join(missing, fmt.Errorf("the healthy one: %+v", p))
		}
		return missing
	})
	for _, f := range faults {
		t.Logf("%s: seen after %v", f.name, after[f.name].Round(time.Second))
	}
	await.OK(t, "the log", func() error {
		log := string(me.Daemon.LogTail(1000))
		// Of two that lose packets at random one may be found out long before the other, so that each has a line.
		if !containsAll(log, []string{"peers no longer answer: ", " gets no large packets"}) || !strings.Contains(log, "peers lose packets: ") && strings.Count(log, " loses packets: ") < 2 {
			return errors.New(log)
		}
		for line := range strings.Lines(log) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "node2 ") {
				return fmt.Errorf("said of what is well: %s", line)
			}
		}
		return nil
	})

	await.OK(t, "weft doctor on node1", func() error { // a peer that loses packets at random may be well for a moment
		found, missing := examine(t, me)
		for i, f := range faults {
			peer := l.Node(first + i)
			if f.likely != "" {
				missing = errors.Join(missing, lacks(f.name, found, "peer-answers", peer.Name, f.likely))
			}
			if f.here[0] != "" {
				missing = errors.Join(missing, lacks(f.name, found, f.here[0], peer.Name, f.here[1]))
			}
		}
		return missing
	})
	for i, f := range faults {
		if f.there[0] != "" {
			named(t, l.Node(first+i), f.name, nil, f.there[0], f.there[1])
		}
	}
}
