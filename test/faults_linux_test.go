package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// finding is what weft doctor --json says of one thing.
type finding struct {
	ID, Verdict, Subject, Found, Cause, Remedy string
	Open                                       []struct{ Cause string }
}

func (f finding) String() string {
	return fmt.Sprintf("%s %s: %s: %s: %s; %s %v", f.ID, f.Verdict, f.Subject, f.Found, f.Cause, f.Remedy,
		f.Open)
}

// examine runs weft doctor on a node, and returns what is not well.
func examine(t *testing.T, n *lab.Node) (found []finding, err error) {
	t.Helper()
	began := time.Now()
	// its status says whether there are faults
	out, errs, _ := weft(t, n, "doctor", "--json")
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

// named waits until weft doctor on a node says of a fault what lacks looks for: of an answer that was late it
// says so.
func named(t *testing.T, n *lab.Node, what, id string, texts ...string) {
	t.Helper()
	await.Within(t, await.Timers, what, func() error {
		found, err := examine(t, n)
		if err != nil {
			return err
		}
		return lacks(what, found, id, texts...)
	})
}

// pingJSON is what weft ping --json prints.
type pingJSON struct {
	SchemaVersion int `json:"schema_version"`
	Healthy       bool
	Took          time.Duration `json:"tookNanoseconds"`
	Ways          []struct {
		Layers []struct {
			Layer, Verdict, State, Says string
			Answered, Sent, MTU         int
		}
		FirstBroken       string
		Indistinguishable []string
		Causes            []struct{ Cause, Command, Where, Tells string }
	}
}

// peerFault is a fault between the first node of a lab and another one.
type peerFault struct {
	name string
	// wire are rules of nftables on the bridge of the underlay. A packet socket gets and sends what no rule of
	// the node itself sees. In these and in the scripts {me}, {peer} and {name} stand for both addresses and the
	// peer's name.
	wire []string
	// at and script make the fault on a host, and undo ends it.
	at, script, undo string
	// do makes it, and undone ends it.
	do, undone func(peer *lab.Node) error
	// answers, lossy and large are what weft peers says of the peer.
	answers      string
	lossy, large bool
	// likely is a part of the cause that weft peers names.
	likely string
	// ping is the first layer that weft ping finds broken.
	ping string
	// here and there are doctor's checks that find it on the first node and on the peer, with a part of what
	// they say.
	here, there [2]string
}

func peerFaults(t *testing.T) []peerFault {
	const (
		viaWay  = "is dropped on the way"
		itsSide = "what it sends arrives, and what this node sends does not"
		hostGo  = "its host is down"
		reject  = "FORWARD -s {me} -d {peer} -p udp --dport 8285 -j REJECT --reject-with icmp-admin-prohibited"
		back    = "FORWARD -s {peer} -d {me} -p udp --dport 8285 -j REJECT --reject-with icmp-admin-prohibited"
	)
	rule := func(chain, match, target string) (add, del string) {
		r := " " + chain + " " + match + " -p udp --dport 8285 -j " + target
		return "iptables -A" + r, "iptables -D" + r
	}
	dropIn, acceptIn := rule("INPUT", "", "DROP")
	rejectIn, takeIn := rule("INPUT", "", "REJECT")
	dropOut, leaveOut := rule("OUTPUT", "-d {peer}", "DROP")
	return []peerFault{
		{name: "the port is dropped on the way", answers: "no", likely: viaWay, ping: "port",
			wire: []string{"ip saddr {me} ip daddr {peer} drop", "ip saddr {peer} ip daddr {me} drop"}},
		{name: "the port is rejected on the way", answers: "no", likely: "198.18.0.2",
			at: "node2", script: "sysctl -qw net.ipv4.conf.all.send_redirects=0 " +
				"net.ipv4.conf.eth0.send_redirects=0\niptables -I " + reject + "\niptables -I " + back,
			undo: "iptables -D " + reject + "\niptables -D " + back,
			do: func(peer *lab.Node) error {
				_, err := peer.Host.Command(t.Context(), "ip", "route", "add", "198.18.0.1", "via", "198.18.0.2")
				return err
			},
			undone: func(peer *lab.Node) error {
				_, err := peer.Host.Command(t.Context(), "ip", "route", "del", "198.18.0.1")
				return err
			}},
		{name: "the port is dropped by the peer's host", answers: "no", likely: itsSide, at: "{name}",
			script: dropIn, undo: acceptIn},
		{name: "the port is rejected by the peer's host", answers: "no", likely: "rejects",
			at: "{name}", script: rejectIn, undo: takeIn},
		{name: "this host drops what leaves", answers: "no", likely: itsSide, at: "node1", script: dropOut,
			undo: leaveOut},
		{name: "2 of 7 are lost to the peer", answers: "yes", lossy: true, likely: "drops",
			wire: []string{"ip saddr {me} ip daddr {peer} numgen inc mod 7 < 2 drop"}},
		{name: "large packets are lost without ICMP", answers: "yes", large: true, likely: "fragmentation needed",
			ping: "port",
			wire: []string{"ip daddr {peer} ip length > 1400 drop"}},
		{name: "the peer's MTU is lowered", answers: "yes", at: "{name}", script: "ip link set eth0 mtu 1400",
			undo: "ip link set eth0 mtu 1500",
			here: [2]string{"mtu", "1372"}},
		{name: "the peer's link is down", answers: "no", likely: hostGo, at: "{name}",
			script: "ip link set eth0 down", undo: "ip link set eth0 up",
			there: [2]string{"interface", "ip link set eth0 up"}},
		{name: "the peer's host is gone", answers: "no", likely: hostGo, ping: "underlay",
			at: "wire", script: "ip link set {name} down", undo: "ip link set {name} up"},
		{name: "the peer's daemon is stopped", answers: "no", likely: "not run",
			do:     func(peer *lab.Node) error { return peer.Stop(t.Context()) },
			undone: func(peer *lab.Node) error { return peer.Start(t.Context()) },
			there:  [2]string{"daemon", "does not run"}},
		{name: "the peer's daemon is frozen", answers: "no", likely: "stopped",
			do:     func(peer *lab.Node) error { return peer.Daemon.Signal(unix.SIGSTOP) },
			undone: func(peer *lab.Node) error { return peer.Daemon.Signal(unix.SIGCONT) },
			there:  [2]string{"daemon", "does not answer"}},
		{name: "a wrong MAC address is pinned", answers: "no", likely: itsSide,
			at: "node1", script: "ip neigh replace {peer} lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
			undo: "ip neigh del {peer} dev eth0", here: [2]string{"peer-underlay", "ip neigh del {peer} dev eth0"}},
		{name: "a route of this host blocks the peer", answers: "no", at: "node1",
			script: "ip route add blackhole {peer}/32", undo: "ip route del {peer}/32",
			here: [2]string{"peer-underlay", "ip route del {peer}/32"}},
	}
}

// Faults that there can be between two nodes are made, each at another peer of one node, all at once.
// That node names each with its likely cause, and so do weft doctor, weft ping and another node's matrix. Of
// the peer that is well none says anything. When the faults are mended all is well again.
func TestPeerFaults(t *testing.T) {
	large(t)
	const first = 3 // node 1 looks, and node 2 is well
	faults := peerFaults(t)
	config := `{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":"socket"}}`
	l := up(t, lab.Spec{Nodes: first - 1 + len(faults), NetworkConfig: []byte(config)})
	me := l.Node(1)
	host := func(name string) *lab.Host {
		all := l.Hosts()
		return all[slices.IndexFunc(all, func(h *lab.Host) bool { return h.Name == name })]
	}
	look := func() (map[string]probeSeen, error) {
		answer, err := weftTells[probesSeen](t, me, "peers")
		seen := map[string]probeSeen{}
		for _, p := range answer.Peers {
			for _, x := range p.Probes {
				seen[p.Name] = x
			}
		}
		return seen, err
	}
	well := func(p probeSeen) bool {
		return p.Answers == "yes" && !p.Lossy && !p.LargeLost && p.Likely == "" && p.PathMTU == 1472 && p.RTT > 0
	}
	allWell := func(what string) {
		t.Helper()
		await.Within(t, await.Timers, what, func() error {
			seen, err := look()
			for _, n := range l.Nodes()[1:] {
				if p := seen[n.Name]; !well(p) {
					err = errors.Join(err, fmt.Errorf("%s: %+v", n.Name, p))
				}
			}
			return err
		})
	}
	allWell("all are well")
	if n := logged(me, "WARN", "peer_"); n > 0 {
		t.Errorf("%d warnings while all was well", n)
	}

	var rules, devices []string
	for i, f := range faults {
		peer := l.Node(first + i)
		fill := strings.NewReplacer("{me}", me.Underlay4.String(), "{peer}", peer.Underlay4.String(),
			"{name}", peer.Name)
		f.at, f.script, f.undo = fill.Replace(f.at), fill.Replace(f.script), fill.Replace(f.undo)
		f.here[1] = fill.Replace(f.here[1])
		faults[i] = f
		devices = append(devices, peer.Name)
		for _, r := range f.wire {
			rules = append(rules, "udp dport 8285 "+fill.Replace(r))
		}
		if f.at != "" {
			sh(t, host(f.at), f.script)
		}
		if f.name == "the port is rejected on the way" {
			sh(t, me.Host, "ip route add "+peer.Underlay4.String()+" via 198.18.0.2")
		}
		if f.do != nil {
			if err := f.do(peer); err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
		}
	}
	sh(t, host("wire"), fmt.Sprintf("nft 'table netdev hole { chain c { type filter hook ingress devices = { "+
		"node1, node2, %s } priority 0\n%s\n}\n}'",
		strings.Join(devices, ", "), strings.Join(rules, "\n")))

	await.Within(t, await.Timers, "every fault is seen", func() error {
		seen, missing := look()
		for i, f := range faults {
			p := seen[l.Node(first+i).Name]
			if p.Answers != f.answers || p.Lossy != f.lossy || p.LargeLost != f.large ||
				!strings.Contains(p.Likely, f.likely) || f.likely != "" && p.Look == "" {
				missing = errors.Join(missing, fmt.Errorf("%s: %+v", f.name, p))
			}
		}
		if p := seen["node2"]; !well(p) {
			missing = errors.Join(missing, fmt.Errorf("the healthy one: %+v", p))
		}
		return missing
	})
	await.Within(t, await.Timers, "events", func() error {
		if logged(me, "WARN", "peer_unanswering") == 0 || logged(me, "WARN", "peer_lossy") == 0 {
			return errors.New(string(me.Daemon.LogTail(100)))
		}
		return nil
	})
	for line := range strings.Lines(string(me.Daemon.LogTail(1000))) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "node2 ") {
			t.Errorf("a warning about the healthy peer: %s", line)
		}
	}
	await.Within(t, await.Timers, "weft doctor on node1", func() error {
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
	await.Within(t, await.Timers, "the matrix of node2", func() error {
		m, status, err := matrixOf(t, l.Node(2))
		if err == nil && (status != 1 || m.Reached) {
			err = fmt.Errorf("exit status %d, %+v", status, m)
		}
		for i, f := range faults {
			if peer := l.Node(first + i).Name; f.answers == "no" && !m.troubles(peer) {
				err = errors.Join(err, fmt.Errorf("%s: no trouble with %s", f.name, peer))
			}
		}
		return err
	})
	for i, f := range faults {
		peer := l.Node(first + i)
		if f.there[0] != "" {
			named(t, peer, f.name, f.there[0], f.there[1])
		}
		if f.ping != "" {
			breaks(t, me, f.ping, peer.Name)
		}
	}
	breaks(t, me, "pod", l.Node(2).Pods[0].V4.Next().Next().String())
	breaks(t, me, "", "node2")

	sh(t, host("wire"), "nft delete table netdev hole")
	for i, f := range faults {
		peer := l.Node(first + i)
		if f.at != "" {
			sh(t, host(f.at), f.undo)
		}
		if f.name == "the port is rejected on the way" {
			sh(t, me.Host, "ip route del "+peer.Underlay4.String())
		}
		if f.undone != nil {
			if err := f.undone(peer); err != nil {
				t.Fatalf("%s: %v", f.name, err)
			}
		}
	}
	allWell("all are well again")
	await.Within(t, await.Timers, "events", func() error {
		if logged(me, "INFO", "peer_unanswering") == 0 || logged(me, "INFO", "peer_lossy") == 0 {
			return errors.New(string(me.Daemon.LogTail(100)))
		}
		return nil
	})
	sh(t, l.Node(2).Host, "ip link del cni0")
	breaks(t, me, "bridge", l.Node(2).Pods[0].V4.String())
	breaks(t, me, "", "node2") // a node without pods has no bridge
}

// breaks waits until weft ping names the layer as the first one that is broken, with a command that tells
// more; "" for none.
func breaks(t *testing.T, from *lab.Node, layer, to string) {
	t.Helper()
	await.Within(t, await.Timers, "weft ping "+to, func() error {
		out, errs, err := weft(t, from, "ping", "--json", "--timeout", "2s", to)
		var p pingJSON
		if json.Unmarshal([]byte(out), &p) != nil || len(p.Ways) != 1 || p.SchemaVersion != 1 ||
			p.Healthy != (err == nil) {
			return fmt.Errorf("%w: %s%s", err, out, errs)
		}
		way := p.Ways[0]
		first := way.FirstBroken == layer || slices.Contains(way.Indistinguishable, layer)
		if !first || p.Healthy != (layer == "") || layer != "" &&
			(len(way.Causes) == 0 || way.Causes[0].Command == "" || way.Causes[0].Where == "") {
			return fmt.Errorf("first broken %q or %q, want %q: %+v", way.FirstBroken, way.Indistinguishable,
				layer, way)
		}
		return nil
	})
}

// logged counts the lines of a node's log of that level whose event begins so.
func logged(n *lab.Node, level, event string) (lines int) {
	for line := range strings.Lines(string(n.Daemon.LogTail(5000))) {
		if strings.Contains(line, "level="+level) && strings.Contains(line, "event="+event) {
			lines++
		}
	}
	return lines
}

// local is a fault of one node.
type local struct {
	name string
	// config is what the node's own prefix has for a network config, and keys what stands below its subnets;
	// without it the node is in the network of all.
	config string
	keys   []string
	// do makes the fault while the daemon does not run, and may change its arguments. then makes it while the
	// daemon runs and is ready.
	do   func(n *lab.Node, args []string) []string
	then func(n *lab.Node)
	// says is what the daemon says by itself, in its log or in weft status.
	says []string
	// check is doctor's, which says texts.
	check string
	texts []string
}

// Faults that one node can have are made, each at another node of a lab, all at once. Each node says by itself
// what is wrong and what to do, and so does weft doctor when it is asked. More of what weft doctor finds is
// TestDoctorFindsWhatIsWrongHere's.
func TestFaultsOfOneNode(t *testing.T) {
	large(t)
	record := func(subnet, at string) string {
		return strings.ReplaceAll(subnet, "/", "-") + ` {"PublicIP":"` + at +
			`","PublicIPv6":null,"Weft":{"Node":"x` + at + `"}}`
	}
	flags := func(more ...string) func(*lab.Node, []string) []string {
		return func(_ *lab.Node, args []string) []string { return append(args, more...) }
	}
	running := func(line string) func(*lab.Node) { return func(n *lab.Node) { sh(t, n.Host, line) } }
	var l *lab.Lab
	changed := func(config string) func(*lab.Node) {
		return func(n *lab.Node) { put(t, l.Store, "/"+n.Name+"/config", config, 0) }
	}
	const vxlan, udp = `{"Network":"10.70.0.0/16","Backend":{"Type":"vxlan"}}`,
		`{"Network":"10.70.0.0/16","Backend":{"Type":"udp"}}`
	faults := []local{
		{name: "a public IP that another node has", do: flags("--public-ip=198.18.0.1"),
			says: []string{"198.18.0.1", "weft lease release 10.42."}, check: "daemon",
			texts: []string{"198.18.0.1", "weft lease release"}},
		{name: "a cloned identity", do: flags("--node-id=node1"), says: []string{"--node-id"}, check: "daemon",
			texts: []string{"--node-id"}},
		{name: "Network contains the store", config: `{"Network":"198.18.128.0/17","Backend":{"Type":"udp"}}`,
			says: []string{"198.18.128.0/17"}, check: "overlap", texts: []string{"198.18.255.253"}},
		{name: "no subnet is free", config: `{"Network":"10.71.0.0/22","SubnetLen":24,"Backend":{"Type":"udp"}}`,
			keys: []string{record("10.71.1.0/24", "198.18.1.1"), record("10.71.2.0/24", "198.18.1.2"),
				record("10.71.3.0/24", "198.18.1.3")},
			says: []string{"none free"}, check: "subnets-left", texts: []string{"weft lease release"}},
		{name: "the range is nearly full",
			config: `{"Network":"10.71.0.0/21","SubnetLen":24,"Backend":{"Type":"udp"}}`,
			keys: []string{record("10.71.1.0/24", "198.18.1.1"), record("10.71.2.0/24", "198.18.1.2"),
				record("10.71.3.0/24", "198.18.1.3"), record("10.71.4.0/24", "198.18.1.4"),
				record("10.71.5.0/24", "198.18.1.5")},
			says: []string{"10.71.0.0/21"}, check: "subnets-left", texts: []string{"6 of 7", "weft lease list"}},
		{name: "Type is changed", config: udp, then: changed(vxlan), says: []string{"type from udp to vxlan"},
			check: "config-running", texts: []string{"type from udp to vxlan"}},
		{name: "an unknown key", config: `{"Network":"10.70.0.0/16","Backend":{"Type":"udp","Colour":"blue"}}`,
			says: []string{"Colour"}, check: "config-keys", texts: []string{"Colour"}},
		{name: "https for http", do: flags("--etcd-endpoints=https://198.18.255.253:2379",
			"--etcd-cafile=/etc/ssl/certs/ca-certificates.crt"),
			says: []string{"http://"}, check: "store-endpoint", texts: []string{"http://"}},
		{name: "the wrong interface", do: func(n *lab.Node, args []string) []string {
			sh(t, n.Host, "ip link add eth9 type veth peer name far9; ip link set far9 up; ip addr add "+
				"203.0.113.9/24 dev eth9; ip link set eth9 up")
			return append(slices.DeleteFunc(args, func(a string) bool { return strings.HasPrefix(a, "--iface=") }),
				"--iface=eth9")
		}, says: []string{"no_peer_answers"}, check: "interface", texts: []string{"eth9", "--iface eth0"}},
		{name: "the port is taken", do: func(n *lab.Node, args []string) []string {
			var c net.PacketConn
			if err := n.Do(func() (err error) { c, err = net.ListenPacket("udp4", "0.0.0.0:8285"); return err }); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return args
		}, says: []string{"port 8285"}, check: "port",
			texts: []string{fmt.Sprintf("pid %d", os.Getpid()), "ss -lunp"}},
		{name: "legacy iptables drops what is forwarded", then: running("iptables-legacy -A FORWARD -j DROP"),
			check: "firewall-forward", texts: []string{"iptables-legacy -I FORWARD -i"}},
		{name: "the bridge has no address", then: running("ip -4 addr flush dev cni0"), check: "pod-bridge",
			texts: []string{"ip addr add 10.42.", "dev cni0"}},
		{name: "a public IP that nobody has", do: flags("--public-ip=198.18.200.200"), check: "duplicate-address",
			texts: []string{"nobody on eth0 answers ARP", "--public-ip=198.18.0."}},
		{name: "firewalld", then: running("nft 'table inet firewalld { chain filter_INPUT { type filter hook " +
			"input priority 10; ct state established,related accept; meta l4proto tcp accept; reject with icmpx " +
			"admin-prohibited; }; }'"),
			check: "firewall-input", texts: []string{"firewall-cmd --permanent --add-port=8285/udp"}},
		{name: "ufw", then: running("iptables -N ufw-user-input; iptables -A INPUT -m conntrack --ctstate " +
			"ESTABLISHED,RELATED -j ACCEPT; iptables -A INPUT -p tcp -j ACCEPT; iptables -A INPUT -j " +
			"ufw-user-input; iptables -P INPUT DROP"),
			check: "firewall-input", texts: []string{"ufw allow 8285/udp"}},
	}
	l = up(t, lab.Spec{Nodes: 1 + len(faults),
		NetworkConfig: []byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":"socket"}}`)})
	for i, f := range faults {
		n := l.Node(2 + i)
		if f.do == nil && f.config == "" {
			continue
		}
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
		sh(t, n.Host, "ip link del flannel0")
		del(t, l.Store, prefix+"/subnets/"+strings.ReplaceAll(n.Net.V4.Masked().String(), "/", "-"))
		args := append(n.Daemon.Args(), "--cache-dir="+n.Dir+"/anew")
		if f.config != "" {
			own := "/" + n.Name
			args = append(args, "--etcd-prefix="+own)
			put(t, l.Store, own+"/config", f.config, 0)
			for _, k := range f.keys {
				key, value, _ := strings.Cut(k, " ")
				put(t, l.Store, own+"/subnets/"+key, value, time.Hour)
			}
		}
		if f.do != nil {
			args = f.do(n, args)
		}
		n.Daemon.SetArgs(args...)
		if err := n.Daemon.Start(); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for i, f := range faults {
		if f.then != nil {
			n := l.Node(2 + i)
			if err := n.WaitReady(t.Context()); err != nil {
				t.Fatal(f.name, lab.Explain(err))
			}
			f.then(n)
		}
	}
	after := map[string]time.Duration{}
	// The host's firewalls are asked a hundred times less long than not, so that a try that took a second on a
	// busy machine is followed by a pause of a hundred.
	await.Within(t, 6*await.Patience, "every fault is said", func() error {
		var missing error
		for i, f := range faults {
			n := l.Node(2 + i)
			if _, ok := after[f.name]; ok {
				continue
			}
			text := string(n.Daemon.LogTail(1000))
			if s, err := ask[json.RawMessage](t.Context(), n, "status"); err == nil {
				text += string(s)
			}
			if !containsAll(text, f.says) {
				missing = errors.Join(missing, fmt.Errorf("%s (%s): no %q", f.name, n.Name, f.says))
				continue
			}
			after[f.name] = time.Since(began)
		}
		return missing
	})
	for i, f := range faults {
		n := l.Node(2 + i)
		t.Logf("%s: said after %v", f.name, after[f.name].Round(time.Second))
		named(t, n, f.name, f.check, f.texts...)
	}
}
