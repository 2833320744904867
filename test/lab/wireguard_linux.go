package lab

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
)

const (
	wireGuardDev      = "wg0"
	wireGuardPort     = 51820
	wireGuardOverhead = 80 // bytes, over IPv6: outer IPv6 40, UDP 8, the data message's header 16 and tag 16
)

// wireGuard makes the Daemon of the node's wireguard-go. It runs in the foreground, and its control socket is
// in the node's folder.
func (n *Node) wireGuard() *Daemon {
	return &Daemon{
		Name: n.Name + "'s wireguard-go", LogFile: filepath.Join(n.Dir, "wireguard-go.log"),
		ns: n.NS, path: n.lab.Spec.WireGuardPath, args: []string{"-f", wireGuardDev}, dir: n.Dir,
	}
}

// startWireGuard starts the node's wireguard-go and gives it its key.
func (n *Node) startWireGuard(ctx context.Context) error {
	var err error
	if n.key, err = ecdh.X25519().GenerateKey(rand.Reader); err != nil {
		return err
	}
	if err := n.Daemon.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.lab.Spec.ReadyTimeout)
	defer cancel()
	err = n.Daemon.until(ctx, func() error {
		return n.setWireGuard(fmt.Sprintf("private_key=%x\nlisten_port=%d\n", n.key.Bytes(), wireGuardPort))
	})
	if err != nil {
		return err
	}
	dev, err := n.link(wireGuardDev)
	if err != nil {
		return err
	}
	if err := n.NS.Netlink().LinkSetMTU(dev, n.Net.MTU); err != nil {
		return fmt.Errorf("%s: MTU %d of %s: %w", n.Name, n.Net.MTU, wireGuardDev, err)
	}
	return n.configure(wireGuardDev)
}

// addWireGuardPeer lets n's wireguard-go send packets for to's pods to to's wireguard-go.
func (n *Node) addWireGuardPeer(to *Node) error {
	var b strings.Builder
	fmt.Fprintf(&b, "public_key=%x\nendpoint=%s:%d\n", to.key.PublicKey().Bytes(), to.Underlay4, wireGuardPort)
	for _, g := range to.Net.gateways() {
		fmt.Fprintf(&b, "allowed_ip=%s\n", g.Masked())
	}
	if err := n.setWireGuard(b.String()); err != nil {
		return err
	}
	for _, g := range to.Net.gateways() {
		if err := n.route(g.Masked(), netip.Addr{}, wireGuardDev, 0); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) setWireGuard(lines string) error {
	return SetWireGuard(filepath.Join(n.Dir, wireGuardDev+".sock"), lines)
}

// SetWireGuard makes one request in the protocol by which WireGuard is configured
// (https://www.wireguard.com/xplatform/), at the control socket of a wireguard-go.
func SetWireGuard(socket, lines string) error {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "set=1\n"+lines+"\n"); err != nil {
		return fmt.Errorf("configure wireguard-go: %w", err)
	}
	answer := make([]byte, 64)
	k, err := c.Read(answer)
	if err != nil {
		return fmt.Errorf("configure wireguard-go: %w", err)
	}
	if got := strings.TrimSpace(string(answer[:k])); got != "errno=0" {
		return fmt.Errorf("configure wireguard-go: it answers %q", got)
	}
	return nil
}
