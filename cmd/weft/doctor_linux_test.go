package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/doctor"
	"weft/cmd/weft/internal/cli"
	"weft/lease"
	"weft/lease/belief"
	"weft/test/netns"
)

// patient is a host in a namespace as a weftd left it that does not run: with its state directory, its device
// and its route, and two peers.
type patient struct {
	ns   *netns.Namespace
	dir  string
	args []string // weftd's
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	ns := netns.New(t, "patient")
	p := &patient{ns: ns, dir: t.TempDir()}
	p.write(t, "net.json", `{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`)
	p.args = []string{"--iface=eth0", "--cache-dir=" + p.dir, "--subnet-file=" + p.dir + "/subnet.env",
		"--net-config-path=" + p.dir + "/net.json"}
	record := func(subnet, at string) *lease.Record {
		return &lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix(subnet)},
			Attrs: lease.Attrs{PublicIP: netip.MustParseAddr(at)}}
	}
	own := record("10.42.1.0/24", "192.0.2.1")
	cached := belief.Cached{Own: *own, Memory: belief.Memory{ClusterID: "x", Revision: 1,
		Config: []byte(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`)}}
	for _, r := range []*lease.Record{own, record("10.42.2.0/24", "192.0.2.2"),
		record("10.42.3.0/24", "192.0.2.3")} {
		cached.Memory.Peers = append(cached.Memory.Peers,
			belief.Remembered{Record: r, Until: time.Now().Add(time.Hour)})
	}
	if _, err := belief.NewCache(p.dir, "/coreos.com/network").Save(cached); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"ip link set lo up", "ip link add eth0 type veth peer name far0", "ip link set far0 up",
		"ip addr add 192.0.2.1/24 dev eth0", "ip link set eth0 up",
		"ip link add flannel0 mtu 1472 type veth peer name far1", "ip link set flannel0 alias weft",
		"ip link set far1 up", "ip addr add 10.42.1.0/32 dev flannel0", "ip link set flannel0 up",
		"ip route add default via 192.0.2.254", "ip route add 10.42.0.0/16 dev flannel0 proto 119",
		"sysctl -qw net.ipv4.ip_forward=1",
	} {
		p.sh(t, line)
	}
	return p
}

func (p *patient) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sh runs a line in the namespace.
func (p *patient) sh(t *testing.T, line string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", line)
	out, err := func() ([]byte, error) {
		var b bytes.Buffer
		cmd.Stdout, cmd.Stderr = &b, &b
		err := p.ns.Run(cmd)
		return b.Bytes(), err
	}()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// examine runs weft doctor --json behind the words of a wrapper, and returns what is not well as "id
// verdict".
func (p *patient) examine(t *testing.T, wrapper []string, weftd ...string) (found []string, text string) {
	t.Helper()
	args := p.args
	if slices.ContainsFunc(weftd, func(a string) bool { return strings.HasPrefix(a, "--iface=") }) {
		args = args[1:] // --iface may be given several times
	}
	words := slices.Concat(wrapper, []string{"/proc/self/exe", "doctor", "--json", "--offline",
		"--control-socket", p.dir + "/none.sock", "--"}, args, weftd)
	if len(wrapper) > 0 {
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		words[len(wrapper)] = exe
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = p.ns.Run(cmd) // its status says whether there are faults
	var r doctor.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	if fault := cmd.ProcessState.ExitCode() == int(cli.ExitFailure); fault == r.Healthy {
		t.Errorf("exit status %d, healthy: %v", cmd.ProcessState.ExitCode(), r.Healthy)
	}
	for _, x := range r.Findings {
		if x.Verdict != doctor.OK && x.Verdict != doctor.Unknown && x.ID != "daemon" &&
			x.ID != "bridge-netfilter" {
			found = append(found, fmt.Sprint(x.ID, " ", x.Verdict))
			text += x.String() + "\n"
		}
	}
	return slices.Compact(found), text
}

// Local faults, made one after the other, are named by the built command, each by its id and with no other
// beside it.
func TestDoctorFindsWhatIsWrongHere(t *testing.T) {
	p := newPatient(t)
	if found, text := p.examine(t, nil); len(found) > 0 {
		t.Fatalf("a healthy host: %q\n%s", found, text)
	}
	for _, tt := range []struct {
		name       string
		make, undo string // lines of the shell
		wrapper    string
		weftd      []string
		want       string // "id verdict", with commas
	}{
		{name: "no forwarding", make: "sysctl -qw net.ipv4.ip_forward=0", undo: "sysctl -qw net.ipv4.ip_forward=1",
			want: "forwarding-ipv4 fault"},
		{name: "a shadowing route", make: "ip route add 10.42.2.128/25 dev eth0",
			undo: "ip route del 10.42.2.128/25 dev eth0", want: "route-shadow fault"},
		{name: "the overlay's route is gone", make: "ip route del 10.42.0.0/16",
			undo: "ip route add 10.42.0.0/16 dev flannel0 proto 119", want: "peer-route fault"},
		{name: "a rule", make: "ip rule add to 10.42.0.0/16 table 7 priority 100", undo: "ip rule del priority 100",
			want: "policy-rules warning"},
		{name: "INPUT drops", make: "iptables -P INPUT DROP", undo: "iptables -P INPUT ACCEPT",
			want: "firewall-input note"},
		{name: "nftables drops", make: "nft 'add table inet f; add chain inet f in { type filter hook input " +
			"priority 0; policy drop; }'", undo: "nft delete table inet f", want: "firewall-input note"},
		{name: "FORWARD drops", make: "iptables -P FORWARD DROP", undo: "iptables -P FORWARD ACCEPT",
			weftd: []string{"--iptables-forward-rules=false"}, want: "firewall-forward note"},
		{name: "FORWARD drops, and weftd will see to it", make: "iptables -P FORWARD DROP",
			undo: "iptables -P FORWARD ACCEPT"},
		{name: "a silent peer", make: "ip neigh replace 192.0.2.3 dev eth0 nud failed",
			undo: "ip neigh del 192.0.2.3 dev eth0", want: "peer-underlay fault"},
		{name: "strict and not symmetric", make: "sysctl -qw net.ipv4.conf.eth0.rp_filter=1; ip route add " +
			"192.0.2.3/32 dev flannel0", undo: "sysctl -qw net.ipv4.conf.eth0.rp_filter=0; ip route del 192.0.2.3/32",
			want: "rp-filter fault, interface warning"},
		{name: "the underlay's MTU is lower", make: "ip link set eth0 mtu 1400", undo: "ip link set eth0 mtu 1500",
			want: "mtu fault"},
		{name: "an address within Network", make: "ip addr add 10.42.77.1/24 dev eth0",
			undo: "ip addr del 10.42.77.1/24 dev eth0", want: "overlap fault"},
		{name: "a misspelt key", make: `sed -i 's/"Network"/"SubnetLenght":25,"Network"/' ` + p.dir + "/net.json",
			undo: `sed -i 's/"SubnetLenght":25,//' ` + p.dir + "/net.json", want: "config-keys warning"},
		{name: "another port than before", make: `sed -i 's/"udp"/"udp","Port":9000/' ` + p.dir + "/net.json",
			undo: `sed -i 's/,"Port":9000//' ` + p.dir + "/net.json", want: "config-running note"},
		{name: "a file that is not there", weftd: []string{"--etcd-cafile=" + p.dir + "/ca.pem"},
			want: "certificates fault, store-settings warning"},
		{name: "no such interface", weftd: []string{"--iface=eth7"}, want: "interface fault"},
		{name: "no CAP_NET_ADMIN", wrapper: "setpriv --inh-caps=-net_admin --bounding-set=-net_admin",
			want: "cap-net-admin fault"},
		{name: "no CAP_NET_RAW", wrapper: "setpriv --inh-caps=-net_raw --bounding-set=-net_raw",
			want: "cap-net-raw warning"},
		{name: "no /dev/net/tun", wrapper: "unshare -m sh -c " +
			"'mount\t-t\ttmpfs\tnone\t/dev/net\t&&\texec\t\"$@\"' sh", want: "tun-device fault"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.make != "" {
				p.sh(t, tt.make)
			}
			if tt.undo != "" {
				defer p.sh(t, tt.undo)
			}
			var wrapper []string
			for _, w := range strings.Fields(strings.ReplaceAll(tt.wrapper, "\t", "\x00")) {
				wrapper = append(wrapper, strings.Trim(strings.ReplaceAll(w, "\x00", " "), "'"))
			}
			found, text := p.examine(t, wrapper, tt.weftd...)
			slices.Sort(found)
			want := strings.Split(tt.want, ", ")
			if slices.Sort(want); strings.Join(found, ", ") != strings.Join(want, ", ") {
				t.Errorf("got %q, want %q\n%s", found, tt.want, text)
			}
		})
	}
	t.Run("the port is taken", func(t *testing.T) {
		var c net.PacketConn
		if err := p.ns.Do(func() (err error) { c, err = net.ListenPacket("udp4", "0.0.0.0:8285"); return err }); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		found, text := p.examine(t, nil)
		if len(found) != 1 || found[0] != "port fault" ||
			!strings.Contains(text, fmt.Sprintf("(pid %d)", os.Getpid())) {
			t.Errorf("got %q\n%s", found, text)
		}
	})
}
