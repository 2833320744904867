package test

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/probe"
)

// plainWireGuard is a host with the command wireguard-go, which somebody set up by hand, and whose record stands in the store as flannel writes it.
type plainWireGuard struct {
	*lab.Host
	key     *ecdh.PrivateKey
	control string // the socket by which it is configured
	addrs   map[int]netip.Addr
}

// startWireGuardGo puts one on the wire as 198.18.0.77, with the subnets 10.42.207.0/24 and, in a network of both families, fd42:0:0:cf::/64.
func startWireGuardGo(t *testing.T, l *lab.Lab, families []int, psk string) *plainWireGuard {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cmd := exec.Command("go", "build", "-ldflags=-X golang.zx2c4.com/wireguard/ipc.socketDirectory="+dir, "-o", dir+"/wireguard-go", "golang.zx2c4.com/wireguard")
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
		lines += w.peer(t, l, n, families, psk)
	}
	await.OK(t, "wireguard-go takes its configuration", func() error { return w.set(lines) })
	sh(t, w.Host, "ip link set wg0 mtu 1420 up")
	record := fmt.Sprintf(`{"PublicIP":"198.18.0.77","PublicIPv6":null,"BackendType":"wireguard","BackendData":{"PublicKey":"%s","Port":51820}}`, w.public())
	key := "10.42.207.0-24"
	for _, f := range families {
		sh(t, w.Host, fmt.Sprintf("ip addr add %v/%d dev lo; ip route add %s dev wg0", w.addrs[f], w.addrs[f].BitLen(), map[int]string{4: "10.42.0.0/16", 6: "fd42::/48"}[f]))
		if f == 6 {
			record = fmt.Sprintf(`{"PublicIP":"198.18.0.77","PublicIPv6":"fd18::4d","BackendType":"wireguard","BackendData":{"PublicKey":"%s","Port":51820},"BackendV6Data":{"PublicKey":"%s","Port":51820}}`, w.public(), w.public())
			key += "&fd42:0:0:cf::-64"
		}
	}
	put(t, l.Store, prefix+"/subnets/"+key, record, 24*time.Hour)
	return w
}

// public is the key that its record has.
func (w *plainWireGuard) public() string {
	return base64.StdEncoding.EncodeToString(w.key.PublicKey().Bytes())
}

// peer is what its operator would tell it of a node.
func (w *plainWireGuard) peer(t *testing.T, l *lab.Lab, n *lab.Node, families []int, psk string) string {
	t.Helper()
	public, err := base64.StdEncoding.DecodeString(publicKey(t, l, n))
	if err != nil {
		t.Fatal(err)
	}
	lines := fmt.Sprintf("public_key=%x\nendpoint=%v:51820\n", public, n.Underlay4)
	if psk != "" {
		b, err := base64.StdEncoding.DecodeString(psk)
		if err != nil {
			t.Fatal(err)
		}
		lines += "preshared_key=" + hex.EncodeToString(b) + "\n"
	}
	for _, f := range families {
		lines += fmt.Sprintf("allowed_ip=%v\n", map[int]netip.Prefix{4: n.Net.V4, 6: n.Net.V6}[f].Masked())
	}
	return lines
}

// set makes one request in the protocol by which WireGuard is configured (https://www.wireguard.com/xplatform/).
func (w *plainWireGuard) set(lines string) error {
	c, err := net.Dial("unix", w.control)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "set=1\n"+lines+"\n"); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err != nil || strings.TrimSpace(string(answer[:n])) != "errno=0" {
		return fmt.Errorf("wireguard-go answers %q, %v", answer[:n], err)
	}
	return nil
}

// The command wireguard-go, which knows nothing of weft, is a node like the others: 20 MB arrive whole both ways, in both families, with a
// preshared key and without, whoever begins, and after either has changed its key.
func TestWireGuardGoAsPeer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, backend, psk string
		families           []int
	}{
		{"without a preshared key", `{"Type":"wireguard"}`, "", []int{4}},
		{"with one, both families over IPv4", `{"Type":"wireguard","Mode":"ipv4","PSK":"` + wireGuardPSK + `"}`, wireGuardPSK, []int{4, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			parallel(t)
			l := up(t, lab.Spec{NetworkConfig: networkOf(c.backend, len(c.families) == 2)})
			w := startWireGuardGo(t, l, c.families, c.psk)
			a, b := l.Node(1).Pods[0], l.Node(2).Pods[0]
			for _, f := range c.families {
				its := probe.Endpoint{Name: "wireguard-go", NS: w.NS, Addr: w.addrs[f]}
				for _, pair := range [][2]probe.Endpoint{{a.Endpoint(f), its}, {its, b.Endpoint(f)}} {
					if err := lab.Reach(await.Context(t, await.Patience), pair[0], pair[1].Addr); err != nil {
						t.Fatalf("IPv%d: %v", f, err)
					}
					for _, way := range [][2]probe.Endpoint{{pair[0], pair[1]}, {pair[1], pair[0]}} {
						r, err := probe.Stream(await.Context(t, 2*time.Minute), probe.StreamPlan{From: way[0], To: way[1], Bytes: 20 << 20, Verify: true})
						if err != nil {
							t.Errorf("IPv%d from %s to %s: %d bytes, %v", f, way[0].Name, way[1].Name, r.Received, err)
						}
					}
				}
				headers := map[int]int{4: 28, 6: 48}[f]
				for size, passes := range map[int]bool{1420 - headers: true, 1421 - headers: false} {
					out, err := a.Command(t.Context(), "ping", fmt.Sprintf("-%d", f), "-M", "do", "-c", "2", "-i", "0.2", "-W", "10", "-s", fmt.Sprint(size), w.addrs[f].String())
					if (err == nil) != passes {
						t.Errorf("IPv%d, %d bytes: %v\n%s", f, size+headers, err, out)
					}
				}
			}
			// The node changes its key, and the operator tells wireguard-go.
			rotates(t, l, a.Node)
			if err := w.set("replace_peers=true\n" + w.peer(t, l, a.Node, c.families, c.psk) + w.peer(t, l, b.Node, c.families, c.psk)); err != nil {
				t.Fatal(err)
			}
			if err := lab.Reach(await.Context(t, await.Patience), a.Endpoint(4), w.addrs[4]); err != nil {
				t.Error(err)
			}
			known := false
			for _, p := range weftJSON[encryptedJSON](t, b.Node, "peers").Peers {
				for _, e := range p.Encryption {
					known = known || e.PublicKey == w.public() && !e.LatestHandshake.IsZero() && e.RxBytes > 20<<20
				}
			}
			if !known {
				t.Errorf("%s does not list it as a peer that it has heard", b.Node.Name)
			}
		})
	}
}
