package test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	proto "github.com/gopacket/gopacket/layers"

	"weft/routing"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
	"weft/test/traffic"
)

// wireGuardPSK is a preshared key, as "wg genpsk" prints one.
const wireGuardPSK = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="

// encryptedJSON is what weft peers --json says of the devices that encrypt.
type encryptedJSON struct {
	Peers []struct {
		Name       string
		Encryption []struct {
			Device, PublicKey, Likely, Look string
			Endpoint                        netip.AddrPort
			LatestHandshake                 time.Time
			TxBytes, RxBytes                uint64
		}
	}
}

// Nodes of type wireguard with a device for each family, and with one for both and a preshared key: every pod
// reaches every other with packets of the full size, 20 MB arrive whole both ways, and on the wire is nothing
// of an inner packet. TestMatrix has each family alone.
func TestWireGuard(t *testing.T) {
	t.Parallel()
	const six = `"EnableIPv6":true,"IPv6Network":"fd42::/48",`
	families := []int{4, 6}
	for _, c := range []struct {
		name, config   string
		nodes, devices int
	}{
		{"both families", `{"Network":"10.42.0.0/16",` + six + `"Backend":{"Type":"wireguard"}}`, 3, 2},
		{"both families over IPv6, with a preshared key", `{"Network":"10.42.0.0/16",` + six +
			`"Backend":{"Type":"wireguard","Mode":"ipv6","PSK":"` + wireGuardPSK + `"}}`, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{Nodes: c.nodes, NetworkConfig: json.RawMessage(c.config)})
			everyPair(t, l.Pods())
			answering(t, l, families, 1420)
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
			for _, f := range families {
				fullSize(t, a, b, f, 1420)
				hidden(t, l, a, b, f)
				for _, way := range [][2]*lab.Pod{{a, b}, {b, a}} {
					streamOf(t, way[0].Endpoint(f), way[1].Endpoint(f), 20<<20)
				}
			}
			encrypts(t, l, c.devices)
		})
	}
}

// encrypts checks what each node says of itself and of the sessions with all others.
func encrypts(t *testing.T, l *lab.Lab, devices int) {
	t.Helper()
	for _, n := range l.Nodes() {
		status(t, n, await.Patience, func(s statusJSON) error {
			if b := s.Backend; !s.Ready || s.Peers != len(l.Nodes())-1 || b.Type != "wireguard" ||
				b.Path != "userspace" || b.MTU != 1420 || !b.InPlace {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		peers := weftJSON[encryptedJSON](t, n, "peers").Peers
		if len(peers) != len(l.Nodes())-1 {
			t.Errorf("%s has %d peers", n.Name, len(peers))
		}
		for _, p := range peers {
			if len(p.Encryption) != devices {
				t.Errorf("%s: %d devices for %s, want %d", n.Name, len(p.Encryption), p.Name, devices)
			}
			for _, e := range p.Encryption {
				if e.LatestHandshake.IsZero() || e.TxBytes == 0 || e.RxBytes == 0 || e.Likely != "" {
					t.Errorf("%s of %s: %+v", n.Name, p.Name, e)
				}
			}
		}
		shows(t, n, "\nweft_peer_latest_handshake_timestamp_seconds{peer=",
			"\nweft_peer_encrypted_transmit_bytes_total{peer=", "\nweft_peer_encrypted_receive_bytes_total{peer=")
		if mode := fileMode(t, keyFile(n)); mode != 0o600 {
			t.Errorf("%s: the private key has mode %o", n.Name, mode)
		}
		key, err := os.ReadFile(keyFile(n))
		if log := n.Daemon.LogTail(5000); err != nil || bytes.Contains(log, bytes.TrimSpace(key)) ||
			bytes.Contains(log, []byte(wireGuardPSK)) {
			t.Errorf("%s: its log shows a key, or it has none: %v", n.Name, err)
		}
	}
}

func keyFile(n *lab.Node) string { return filepath.Join(n.CacheDir, routing.WireGuardKeyFile) }

func fileMode(t *testing.T, file string) os.FileMode {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// hidden sends a datagram, and has a look at all that two nodes say to each other meanwhile: it is
// WireGuard's, and shows nothing of it.
func hidden(t *testing.T, l *lab.Lab, a, b *lab.Pod, family int) {
	t.Helper()
	wire := sniff(t, l.Wire, a.Node.Name)
	in, out := listenAt(t, b, family), listenAt(t, a, family)
	defer func() { _, _ = in.Close(), out.Close() }()
	const word = "weft's own words in plain"
	secret := bytes.Repeat([]byte(word), 40)
	got := make([]byte, 2000)
	for range 10 {
		if _, err := out.WriteToUDPAddrPort(secret, netip.AddrPortFrom(b.Addr(family), secretPort)); err != nil {
			t.Fatal(err)
		}
		if err := in.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
			t.Fatal(err)
		}
		if n, _, err := in.ReadFromUDPAddrPort(got); err != nil || !bytes.Equal(got[:n], secret) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	// The capture is over with a word in plain, which it has to have seen.
	ear := listenOn(t, &lab.Pod{Host: b.Node.Host}, netip.AddrPortFrom(b.Node.Underlay4, 9999))
	defer ear.Close()
	mouth := listenOn(t, &lab.Pod{Host: a.Node.Host}, netip.AddrPortFrom(a.Node.Underlay4, 9999))
	defer mouth.Close()
	if _, err := mouth.WriteToUDPAddrPort([]byte(word), netip.AddrPortFrom(b.Node.Underlay4, 9999)); err != nil {
		t.Fatal(err)
	}
	carried := 0
	wire.next(await.Patience, func(p gopacket.Packet) bool {
		plain := bytes.Contains(p.Data(), []byte(word))
		udp, ok := p.Layer(proto.LayerTypeUDP).(*proto.UDP)
		switch {
		case ok && udp.DstPort == 9999 && plain:
			return true
		case plain:
			t.Errorf("a frame shows what is inside:\n%v", p)
		case ok && (udp.DstPort == routing.DefaultWireGuardPort || udp.DstPort == routing.DefaultWireGuardPort6) &&
			len(udp.Payload) > len(secret) && bytes.Equal(udp.Payload[:4], []byte{4, 0, 0, 0}):
			carried++
		}
		return false
	})
	if carried < 10 {
		t.Errorf("IPv%d: %d data messages of WireGuard were seen, want 10", family, carried)
	}
}

// A node is given another key while packets flow, by command and by a new file: its record follows, its peers
// know the new key alone, and connections go on.
func TestWireGuardKeysChange(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 3, NetworkConfig: networkOf(`{"Type":"wireguard"}`, true)})
	everyPair(t, l.Pods())
	a, b, c := l.Node(1).Pods[0], l.Node(2).Pods[0], l.Node(3).Pods[0]
	before := publicKey(t, l, b.Node)

	flows := []*traffic.Flow{flowOf(t, a, b), flowOf(t, b, a)}
	tcp := make(chan error, 1)
	go func() { // ends with the stream, or with the test
		_, err := probe.Stream(await.Context(t, 2*time.Minute),
			probe.StreamPlan{From: c.Endpoint(6), To: b.Endpoint(6), Bytes: 20 << 20, Verify: true})
		tcp <- err
	}()
	after := rotates(t, l, b.Node)
	for _, f := range flows {
		f.Passes(1000)
		if r := f.Stop(); r.Duplicated > 0 {
			t.Error(r)
		}
	}
	if err := <-tcp; err != nil {
		t.Errorf("TCP over the change: %v", err)
	}
	keyIs(t, a.Node, b.Node, after)
	keyIs(t, c.Node, b.Node, after)

	// It goes, and comes with a file of its own making: what was the node's is another node's word for it.
	if err := b.Node.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(keyFile(b.Node)); err != nil {
		t.Fatal(err)
	}
	if err := b.Node.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	everyPair(t, l.Pods())
	third := publicKey(t, l, b.Node)
	if third == after || third == before {
		t.Errorf("the node made the key %s again", third)
	}
	keyIs(t, a.Node, b.Node, third)
}

// rotates gives a node another key, and waits until its record has it.
func rotates(t *testing.T, l *lab.Lab, n *lab.Node) string {
	t.Helper()
	before := publicKey(t, l, n)
	if out, errs, err := weft(t, n, "rotate-key"); err != nil {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	await.True(t, "the record has another key", func() bool { return publicKey(t, l, n) != before })
	return publicKey(t, l, n)
}

// publicKey is the key in a node's record.
func publicKey(t *testing.T, l *lab.Lab, n *lab.Node) string {
	t.Helper()
	var r struct{ BackendData struct{ PublicKey string } }
	if err := json.Unmarshal([]byte(recordOf(t, l, n).value), &r); err != nil || r.BackendData.PublicKey == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	return r.BackendData.PublicKey
}

// keyIs waits until n knows a peer by that key alone.
func keyIs(t *testing.T, n, peer *lab.Node, key string) {
	t.Helper()
	await.OK(t, n.Name+" knows "+peer.Name+"'s key", func() error {
		answer, err := ask[encryptedJSON](t.Context(), n, "peers")
		if err != nil {
			return err
		}
		for _, p := range answer.Peers {
			if p.Name != peer.Name {
				continue
			}
			for _, e := range p.Encryption {
				if e.PublicKey != key || e.LatestHandshake.IsZero() {
					return fmt.Errorf("%+v", e)
				}
			}
			if len(p.Encryption) > 0 {
				return nil
			}
		}
		return fmt.Errorf("%s is no peer: %+v", peer.Name, answer)
	})
}

// A node's weftd ends, asked to and not, and begins again: the sessions that are lost begin anew at once,
// long before a peer's own timers, also where nothing is sent from the node. It keeps its key.
func TestWireGuardRestart(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{NetworkConfig: networkOf(`{"Type":"wireguard","Probe":false}`, false)})
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	reach(t, await.Patience, a, b, 4)
	key := publicKey(t, l, b.Node)
	start := func(err error) {
		t.Helper()
		if err == nil {
			err = b.Node.Start(t.Context())
		}
		if err != nil {
			t.Fatal(lab.Explain(err))
		}
	}
	stop := func() { start(b.Node.Stop(t.Context())) }
	kill := func() { start(b.Node.Kill()) }
	upgrade := func() {
		if out, errs, err := weft(t, b.Node, "upgrade"); err != nil {
			t.Fatalf("%v: %s%s", err, out, errs)
		}
	}
	for _, c := range []struct {
		name     string
		from, to *lab.Pod
		again    func()
	}{
		{"SIGTERM, to it", a, b, stop}, {"SIGTERM, from it", b, a, stop},
		{"SIGKILL, to it", a, b, kill}, {"SIGKILL, from it", b, a, kill},
		{"upgrade, to it", a, b, upgrade}, {"upgrade, from it", b, a, upgrade},
	} {
		f := flowOf(t, c.from, c.to)
		c.again()
		f.Passes(1000)
		if r := f.Stop(); r.Duplicated > 0 || r.LongestGap > longestSession {
			t.Errorf("%s: %s, want no gap longer than %s", c.name, r, longestSession)
		}
	}
	if now := publicKey(t, l, b.Node); now != key {
		t.Errorf("its key is %s, and was %s", now, key)
	}
	if out := string(b.Node.Daemon.LogTail(1000)); strings.Contains(out, "level=ERROR") {
		t.Error(out)
	}
}

// longestSession is less than a peer waits that finds out by its own timers that the other end has lost the
// session: 15 s (KEEPALIVE_TIMEOUT and REKEY_TIMEOUT of WireGuard's paper, section 6.1).
const longestSession = 14 * time.Second

// shows waits until the node's /metrics have all of the texts.
func shows(t *testing.T, n *lab.Node, texts ...string) {
	t.Helper()
	await.Within(t, await.Timers, fmt.Sprintf("%s shows %q", n.Name, texts), func() error {
		have, err := n.Metrics(t.Context())
		for _, text := range texts {
			if err == nil && !strings.Contains(have, text) {
				err = fmt.Errorf("no %q", text)
			}
		}
		return err
	})
}

// plainWireGuard is a host with the command wireguard-go, which somebody set up by hand. Its record stands in
// the store as flannel writes it.
type plainWireGuard struct {
	*lab.Host
	key     *ecdh.PrivateKey
	control string // the socket by which it is configured
	addrs   map[int]netip.Addr
}

// startWireGuardGo puts one on the wire as 198.18.0.77, with the subnets 10.42.207.0/24 and fd42:0:0:cf::/64.
func startWireGuardGo(t *testing.T, l *lab.Lab) *plainWireGuard {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command("go", "build", "-ldflags=-X golang.zx2c4.com/wireguard/ipc.socketDirectory="+dir,
		"-o", dir+"/wireguard-go", "golang.zx2c4.com/wireguard")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	w := &plainWireGuard{Host: newcomer(t, l, 77), control: filepath.Join(dir, "wg0.sock"),
		addrs: map[int]netip.Addr{4: netip.MustParseAddr("10.42.207.2"), 6: netip.MustParseAddr("fd42:0:0:cf::2")}}
	if w.key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		t.Fatal(err)
	}
	d := lab.NewDaemon(w.Host, "wireguard-go", dir+"/log", dir+"/wireguard-go", "-f", "wg0")
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of wireguard-go's log:\n%s", d.LogTail(30))
		}
		_ = d.Kill()
	})
	lines := fmt.Sprintf("private_key=%x\nlisten_port=51820\n", w.key.Bytes())
	for _, n := range l.Nodes() {
		lines += w.peer(t, l, n)
	}
	await.OK(t, "wireguard-go takes its configuration", func() error {
		return lab.SetWireGuard(w.control, lines)
	})
	sh(t, w.Host, fmt.Sprintf(`ip link set wg0 mtu 1420 up
		ip addr add %v/32 dev lo; ip route add 10.42.0.0/16 dev wg0
		ip addr add %v/128 dev lo; ip route add fd42::/48 dev wg0`, w.addrs[4], w.addrs[6]))
	put(t, l.Store, prefix+"/subnets/10.42.207.0-24&fd42:0:0:cf::-64", fmt.Sprintf(
		`{"PublicIP":"198.18.0.77","PublicIPv6":"fd18::4d","BackendType":"wireguard",`+
			`"BackendData":{"PublicKey":"%[1]s","Port":51820},"BackendV6Data":{"PublicKey":"%[1]s","Port":51820}}`,
		w.public()), 24*time.Hour)
	return w
}

// public is the key that its record has.
func (w *plainWireGuard) public() string {
	return base64.StdEncoding.EncodeToString(w.key.PublicKey().Bytes())
}

// peer is what its operator would tell it of a node.
func (w *plainWireGuard) peer(t *testing.T, l *lab.Lab, n *lab.Node) string {
	t.Helper()
	public, err := base64.StdEncoding.DecodeString(publicKey(t, l, n))
	if err != nil {
		t.Fatal(err)
	}
	shared, err := base64.StdEncoding.DecodeString(wireGuardPSK)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("public_key=%x\nendpoint=%v:51820\npreshared_key=%x\nallowed_ip=%v\nallowed_ip=%v\n",
		public, n.Underlay4, shared, n.Net.V4.Masked(), n.Net.V6.Masked())
}

// The command wireguard-go, which knows nothing of weft, is a node like the others: 20 MB arrive whole both
// ways, in both families over IPv4, with a preshared key, whoever begins, and after either has changed its
// key.
func TestWireGuardGoAsPeer(t *testing.T) {
	parallel(t)
	backend := `{"Type":"wireguard","Mode":"ipv4","PSK":"` + wireGuardPSK + `"}`
	l := up(t, lab.Spec{NetworkConfig: networkOf(backend, true)})
	w := startWireGuardGo(t, l)
	a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
	its := &lab.Pod{Host: w.Host, V4: w.addrs[4], V6: w.addrs[6]}
	for _, f := range []int{4, 6} {
		for _, pair := range [][2]*lab.Pod{{a, its}, {its, b}} {
			reach(t, await.Patience, pair[0], pair[1], f)
			for _, way := range [][2]*lab.Pod{{pair[0], pair[1]}, {pair[1], pair[0]}} {
				streamOf(t, way[0].Endpoint(f), way[1].Endpoint(f), 20<<20)
			}
		}
		fullSize(t, a, its, f, 1420)
	}
	// The node changes its key, and the operator tells wireguard-go.
	rotates(t, l, a.Node)
	if err := lab.SetWireGuard(w.control, "replace_peers=true\n"+w.peer(t, l, a.Node)+w.peer(t, l, b.Node)); err != nil {
		t.Fatal(err)
	}
	reach(t, await.Patience, a, its, 4)
	known := false
	for _, p := range weftJSON[encryptedJSON](t, b.Node, "peers").Peers {
		for _, e := range p.Encryption {
			known = known || e.PublicKey == w.public() && !e.LatestHandshake.IsZero() && e.RxBytes > 20<<20
		}
	}
	if !known {
		t.Errorf("%s does not list it as a peer that it has heard", b.Node.Name)
	}
}
