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

	"weft/test/await"
	"weft/test/lab"
)

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
