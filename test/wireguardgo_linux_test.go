package test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
)

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
