package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/test/await"
	"weft/test/lab"
)

// flannelPrefix is not the default, so that the test shows that the flag counts.
const flannelPrefix = "/flannel/net"

// Daemons that were started as flanneld is, with its flags and its variables and no others, write
// what flannel writes into etcd, on the wire and into subnet.env.
func TestFlannelsFlagsAlone(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{})
	put(t, l.Store, flannelPrefix+"/config", ipv4Only, 0)
	for _, n := range l.Nodes() {
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		sh(t, n.Host, "ip link del flannel0")
		ownMachine(t, n)
	}
	flags := map[string]string{
		"etcd-endpoints": l.Store.Endpoint(), "etcd-prefix": flannelPrefix, "iface": "eth0",
		"healthz-ip": "127.0.0.1", "healthz-port": fmt.Sprint(lab.HealthPort), "subnet-lease-renew-margin": "61",
		"iptables-forward-rules": "false", "v": "1",
	}
	for i, n := range l.Nodes() {
		env, args := []string{"-u", "PATH"}, []string{command(t, "weftd")}
		for name, value := range flags {
			if i == 0 {
				args = append(args, "-"+name+"="+value)
			} else {
				env = append(env, "FLANNELD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
			}
		}
		args = append(args, "--subnet-file="+n.SubnetFile, "--public-ip="+n.Underlay4.String())
		path, err := exec.LookPath("env")
		if err != nil {
			t.Fatal(err)
		}
		n.Daemon.SetPath(path)
		n.Daemon.SetArgs(append(env, args...)...)
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
	}
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	checkRecords(t, l)
	checkSubnetFiles(t, l)
	checkPayload(t, l, a, b)
}

// ownMachine gives a node directories and a machine id of its own, in its mount namespace: two daemons
// on one machine share the defaults of the flags that flannel does not have.
func ownMachine(t *testing.T, n *lab.Node) {
	t.Helper()
	err := n.Do(func() error {
		for _, dir := range []string{"/run", "/var/lib", "/etc"} {
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
				return fmt.Errorf("mount on %s: %w", dir, err)
			}
		}
		return os.WriteFile("/etc/machine-id", fmt.Appendf(nil, "%032x\n", n.Index), 0o444)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkRecords compares raw keys and values with those of flannel's udp backend, to the byte; the
// one addition is the object Weft, at the end.
func checkRecords(t *testing.T, l *lab.Lab) {
	t.Helper()
	all := list(t, l.Store, flannelPrefix+"/")
	if len(all) != 1+len(l.Nodes()) {
		t.Fatalf("keys: %v", all)
	}
	weftObject := regexp.MustCompile(`,"Weft":(\{[^{}]*\})\}$`)
	for _, n := range l.Nodes() {
		key := flannelPrefix + "/subnets/" + strings.ReplaceAll(n.Net.V4.Masked().String(), "/", "-")
		want := fmt.Sprintf(`{"PublicIP":"%s","PublicIPv6":null}`, n.Underlay4)
		found := false
		for _, kv := range all {
			if kv.key != key {
				continue
			}
			found = true
			ours := weftObject.FindStringSubmatch(kv.value)
			if ours == nil || weftObject.ReplaceAllString(kv.value, "}") != want {
				t.Errorf("%s: %s\nwant %s with a last object Weft", key, kv.value, want)
				continue
			}
			var w struct{ Node string }
			if err := json.Unmarshal([]byte(ours[1]), &w); err != nil || len(w.Node) != 32 {
				t.Errorf("Weft: %v %s", err, ours[1])
			}
			if granted, left := ttl(t, l.Store, kv.lease); granted != 24*time.Hour || left < 24*time.Hour-time.Minute {
				t.Errorf("%s: lives for %s, %s are left, want 24 h", key, granted, left)
			}
		}
		if !found {
			t.Errorf("no key %s: %v", key, all)
		}
	}
	t.Logf("records: %v", all)
}

func checkSubnetFiles(t *testing.T, l *lab.Lab) {
	t.Helper()
	for _, n := range l.Nodes() {
		want := fmt.Sprintf(
			"FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=%s\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=false\n", n.Net.V4)
		if got, err := os.ReadFile(n.SubnetFile); err != nil || string(got) != want {
			t.Errorf("%s's subnet file: %v\n%s\nwant\n%s", n.Name, err, got, want)
		}
	}
}

// checkPayload captures one datagram on the wire, and looks at what the pod gets of it.
func checkPayload(t *testing.T, l *lab.Lab, a, b *lab.Pod) {
	t.Helper()
	wire := sniff(t, l.Wire, b.Node.Name)
	hears(t, listenUDP(t, b, secretPort), b, a)
	p := wire.next(await.Patience, func(p gopacket.Packet) bool {
		return bytes.Contains(p.Data(), []byte("honest"))
	})
	ip, ok := p.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
	udp, ok2 := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
	if !ok || !ok2 {
		t.Fatalf("not UDP over IPv4: %v", p)
	}
	if src, dst := addr(ip.SrcIP), addr(ip.DstIP); src != a.Node.Underlay4 || dst != b.Node.Underlay4 ||
		udp.SrcPort != 8285 || udp.DstPort != 8285 || ip.TOS != 0 {
		t.Errorf("outer %v:%d to %v:%d, TOS %#x; want port 8285 on both sides and Not-ECT", src, udp.SrcPort, dst,
			udp.DstPort, ip.TOS)
	}
	in := gopacket.NewPacket(udp.Payload, proto.LayerTypeIPv4, gopacket.Default)
	if err := in.ErrorLayer(); err != nil {
		t.Fatalf("the payload is not a bare IPv4 packet: %v", err.Error())
	}
	inIP := in.Layer(proto.LayerTypeIPv4).(*proto.IPv4)
	if int(inIP.Length) != len(udp.Payload) || addr(inIP.SrcIP) != a.V4 || addr(inIP.DstIP) != b.V4 {
		t.Errorf("inner %v to %v, %d bytes of %d", inIP.SrcIP, inIP.DstIP, inIP.Length, len(udp.Payload))
	}
	if inIP.TTL != 63 { // the pod's 64, less one hop: node A's kernel
		t.Errorf("inner TTL %d on the wire, want 63", inIP.TTL)
	}
	// Between weft nodes the inner checksum may be left to the receiver's device.
	whole, err := encap.ParseInner(udp.Payload)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, partial := encap.PartialChecksum(udp.Payload, whole); partial {
		return
	}
	if err := checksums(in); err != nil {
		t.Error(err)
	}
}

func addr(ip []byte) netip.Addr { a, _ := netip.AddrFromSlice(ip); return a }
