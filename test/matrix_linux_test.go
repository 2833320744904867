package test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// routesByCommand stands in a config for the file that routeScript returns.
const routesByCommand = "@routes"

// routeScript is a command of type extension that does what host-gw does: its argument is replace or del.
func routeScript(t *testing.T) string {
	t.Helper()
	const script = `#!/bin/sh
set -e
test -z "$SUBNET" || ip route $1 $SUBNET via $PUBLIC_IP
test -z "$IPV6SUBNET" || ip -6 route $1 $IPV6SUBNET via $PUBLIC_IPV6
`
	name := t.TempDir() + "/routes"
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

// matrixAll is set by make test-matrix: every combination, in place of a choice in which every two
// values meet.
const matrixAll = "WEFT_MATRIX"

// combination is one value of each of the dimensions.
type combination struct{ backend, family, firewall, path int }

// dimensions are the values, in the order of combination's fields.
type dimensions struct {
	backends  []matrixBackend
	families  []matrixFamily
	firewalls []firewall
	paths     []string
}

type matrixBackend struct {
	name, keys string
	user       bool   // has a path
	overhead   [3]int // bytes that it adds to a packet: of each family in matrixFamily's order
	path       string // in weft status, for one without a choice of paths
	only4      bool   // knows no IPv6, and so only the first family
}

type matrixFamily struct {
	name, keys string
	families   []int
}

func matrixDimensions() dimensions {
	return dimensions{
		[]matrixBackend{
			{"udp", `"Type":"udp"`, true, [3]int{28, 48, 28}, "", false},
			{"vxlan in user space", `"Type":"vxlan","Userspace":"always"`, true, [3]int{50, 70, 70}, "", false},
			{"vxlan by the kernel", `"Type":"vxlan","Userspace":"never"`, false, [3]int{50, 70, 70}, "kernel", false},
			{"host-gw", `"Type":"host-gw"`, false, [3]int{}, "kernel", false},
			{"ipip in user space", `"Type":"ipip","Userspace":"always"`, false, [3]int{20}, "socket", true},
			{"extension", `"Type":"extension","SubnetAddCommand":"` + routesByCommand +
				` replace","SubnetRemoveCommand":"` + routesByCommand + ` del"`,
				false, [3]int{}, "command", false},
			{"wireguard", `"Type":"wireguard","Userspace":"always"`, false, [3]int{80, 80, 80}, "userspace", false},
		},
		[]matrixFamily{
			{"IPv4", `"Network":"10.42.0.0/16"`, []int{4}},
			{"IPv6 alone", `"EnableIPv4":false,"EnableIPv6":true,"IPv6Network":"fd42::/48"`, []int{6}},
			{"dual stack", `"Network":"10.42.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48"`, []int{4, 6}},
		},
		firewalls(),
		[]string{"portable", "socket", "raw"},
	}
}

// all is every combination, of backends without a choice of paths once.
func (d dimensions) all() (cs []combination) {
	for b, backend := range d.backends {
		for f := range d.families {
			for w := range d.firewalls {
				for p := range d.paths {
					if (backend.user || p == 0) && (!backend.only4 || f == 0) {
						cs = append(cs, combination{b, f, w, p})
					}
				}
			}
		}
	}
	return cs
}

// meeting is a value of one dimension and one of another.
type meeting [4]int

// pairs are those that meet in c; a path that has no effect meets nobody.
func (d dimensions) pairs(c combination) (ps []meeting) {
	values := []int{c.backend, c.family, c.firewall, c.path}
	if !d.backends[c.backend].user {
		values = values[:3]
	}
	for i := range values {
		for j := range i {
			ps = append(ps, meeting{j, values[j], i, values[i]})
		}
	}
	return ps
}

// pairwise is a choice of combinations in which all pairs meet that meet in any: each time the one
// that adds most.
func (d dimensions) pairwise() (chosen []combination) {
	met := map[meeting]bool{}
	for {
		best, most := combination{}, 0
		for _, c := range d.all() {
			adds := 0
			for _, p := range d.pairs(c) {
				if !met[p] {
					adds++
				}
			}
			if adds > most {
				best, most = c, adds
			}
		}
		if most == 0 {
			return chosen
		}
		for _, p := range d.pairs(best) {
			met[p] = true
		}
		chosen = append(chosen, best)
	}
}

// TestMatrix has three nodes with each combination of backend, family, firewall and path: every pod pings and
// streams to every other, with packets of the full size and one byte more. The combinations of a family and a
// firewall share a lab, one after the other.
func TestMatrix(t *testing.T) {
	t.Parallel()
	d := matrixDimensions()
	cs := d.pairwise()
	if os.Getenv(matrixAll) != "" {
		cs = d.all()
	}
	type host struct{ family, firewall int }
	sharing := map[host][]combination{}
	for _, c := range cs {
		h := host{c.family, c.firewall}
		sharing[h] = append(sharing[h], c)
	}
	for h, cs := range sharing {
		t.Run(d.families[h.family].name+" "+d.firewalls[h.firewall].name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: 3, NetworkConfig: d.config(t, cs[0]),
				WeftdArgs: []string{"--ip-masq", "--iptables-resync=1", "--allow-extension"}})
			for _, n := range l.Nodes() {
				sh(t, n.Host, d.firewalls[h.firewall].hint)
			}
			args := l.Node(2).Daemon.Args()
			for _, c := range cs {
				t.Run(d.backends[c.backend].name+" "+d.path(c), func(t *testing.T) { d.carries(t, l, c, args) })
			}
		})
	}
}

// path is that of a combination, "" where the kernel carries the packets.
func (d dimensions) path(c combination) string {
	if d.backends[c.backend].user {
		return d.paths[c.path]
	}
	return ""
}

// config is the network configuration of a combination.
func (d dimensions) config(t *testing.T, c combination) json.RawMessage {
	b := d.backends[c.backend]
	keys := strings.ReplaceAll(b.keys, routesByCommand, routeScript(t))
	if b.user {
		keys += `,"Path":"` + d.path(c) + `"`
	}
	wall, family := d.firewalls[c.firewall].key, d.families[c.family].keys
	return json.RawMessage(fmt.Sprintf(`{%s%s,"Backend":{"Probe":false,%s}}`, wall, family, keys))
}

// carries has the nodes of a lab start with a combination, and looks that it carries packets. args are the
// second node's.
func (d dimensions) carries(t *testing.T, l *lab.Lab, c combination, args []string) {
	b, family, wall := d.backends[c.backend], d.families[c.family], d.firewalls[c.firewall]
	put(t, l.Store, configKey, string(d.config(t, c)), 0)
	if b.name != "extension" { // whose commands write where they like
		args = append(slices.Clone(args), "--confine=files")
	}
	l.Node(2).Daemon.SetArgs(args...)
	for _, n := range l.Nodes() {
		if err := n.Restart(await.Context(t, await.Patience)); err != nil {
			t.Fatal(lab.Explain(err))
		}
		rulesOf(t, n, func(r rulesJSON) bool { return r.Rules.InPlace && r.Rules.Firewall == wall.name })
		for _, iptables := range wall.policy {
			sh(t, n.Host, iptables+" -P FORWARD DROP")
		}
	}
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if want := b.path + d.path(c); !s.Ready || s.Peers != 2 || s.Backend.Path != want ||
				len(s.Backend.Notes) > 0 {
				return fmt.Errorf("ready %v, %d peers, %+v, want path %s", s.Ready, s.Peers, s.Backend, want)
			}
			return nil
		})
		fewRights(t, n)
		widen(t, n)
	}
	meshed(t, l, family.families, 1500-b.overhead[c.family])
}

// widen gives a node's pods the MTU that their network has now, as those have that are made anew.
func widen(t *testing.T, n *lab.Node) {
	t.Helper()
	n.Net.MTU = current(t, n).Backend.MTU
	set := fmt.Sprintf("ip link set $d mtu %d; done; ip route flush cache; ip -6 route flush cache", n.Net.MTU)
	sh(t, n.Host, "for d in $(ip -o link show master cni0 | cut -d: -f2 | cut -d@ -f1) cni0; do "+set)
	for _, p := range n.Pods {
		if out, err := p.Command(t.Context(), "sh", "-ec", "for d in eth0; do "+set); err != nil {
			t.Fatalf("%s: %v\n%s", p.Name, err, out)
		}
	}
}

// fewRights fails the test if n's weftd can do more than it has need of. One that is linked with C code, as
// the race detector takes, keeps what it had.
func fewRights(t *testing.T, n *lab.Node) {
	t.Helper()
	if os.Getenv("WEFT_RACE") != "" {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Daemon.PID()))
	if err != nil {
		t.Fatal(err)
	}
	const few = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_DAC_READ_SEARCH
	for _, want := range []string{fmt.Sprintf("CapPrm:\t%016x", few), fmt.Sprintf("CapEff:\t%016x", few),
		fmt.Sprintf("CapBnd:\t%016x", few), "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%s: weftd has more rights than it has need of, not %q:\n%s", n.Name, want, status)
		}
	}
}

// A vxlan network of which one node's kernel carries the packets, another's data plane does, and a third
// goes from the one to the other and back. Nobody can tell by the records.
func TestMixedVTEPs(t *testing.T) {
	parallel(t)
	config := func(how string) string {
		return string(networkOf(`{"Type":"vxlan","Userspace":"`+how+`"}`, true))
	}
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: json.RawMessage(config("never"))})
	records := func() (all []string) {
		for _, n := range l.Nodes() {
			before, _, _ := strings.Cut(recordOf(t, l, n).value, `,"Weft"`)
			all = append(all, before)
		}
		return all
	}
	before := fmt.Sprint(records())
	become := func(n *lab.Node, how string) {
		t.Helper()
		put(t, l.Store, prefix+"/config", config(how), 0)
		if err := n.Restart(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
		kernel, device := how == "never", map[string]string{"never": "flannel.1", "always": "flannel0"}[how]
		status(t, n, await.Patience, func(s statusJSON) error {
			if !s.Ready || s.Peers != 2 || s.Backend.Device != device || s.Backend.MTU != 1430 ||
				s.Backend.Port != 8472 || s.Backend.Type != "vxlan" {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		if got := sh(t, n.Host, "ip -o link show type vxlan") != ""; got != kernel {
			t.Errorf("%s has a device of the kernel's: %v, want %v", n.Name, got, kernel)
		}
	}
	become(l.Node(2), "always")
	become(l.Node(3), "always")
	meshed(t, l, []int{4, 6}, 1430)
	become(l.Node(3), "never")
	meshed(t, l, []int{4, 6}, 1430)
	if now := fmt.Sprint(records()); now != before {
		t.Errorf("records before\n%s\nnow\n%s", before, now)
	}
	// The ways of peers, and what a data plane counts of a peer with an address in each family.
	for _, p := range weftJSON[waysJSON](t, l.Node(2), "peers").Peers {
		if len(p.Ways) != 2 || p.Ways[0].Way != "tunnel" || p.Ways[1].Way != "tunnel" || p.TxPackets == 0 ||
			p.RxPackets == 0 {
			t.Errorf("%+v", p)
		}
	}
}
