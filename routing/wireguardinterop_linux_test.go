package routing

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"weft/lease"
	"weft/routing/internal/wireguard"
)

// TestWireGuardTalksToWireGuardGo joins a node to what the command wireguard-go is made of: the library's
// device with its own TUN and sockets.
func TestWireGuardTalksToWireGuardGo(t *testing.T) {
	for _, c := range []struct {
		name, keys, psk, endpoint string
	}{
		{"IPv4", `,"Mode":"ipv4"`, "", "192.0.2.1:51820"},
		{"IPv6, with PSK", `,"Mode":"ipv6","PSK":"` + testPSK + `"`, testPSK, "[2001:db8::1]:51820"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, _ := hosts(t, 2)
			a, b := nodes[0], nodes[1]
			a.openWireGuard(t, c.keys, t.TempDir())
			key := wireguard.NewPrivateKey()
			public, err := key.Public()
			if err != nil {
				t.Fatal(err)
			}
			b.own.BackendType, b.own.BackendData, b.own.BackendV6Data = "wireguard", wireGuardData(public, 51820), wireGuardData(public, 51820)
			var dev *device.Device
			if err := b.k.Do(func() error {
				d, err := tun.CreateTUN("wg0", 1420)
				if err != nil {
					return err
				}
				dev = device.NewDevice(d, bindIn{conn.NewDefaultBind(), b.k}, device.NewLogger(device.LogLevelSilent, ""))
				if err := dev.IpcSet(plainConfig(t, a, key, c.psk, c.endpoint)); err != nil {
					return err
				}
				return dev.Up()
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(dev.Close)
			for _, args := range []string{"link set wg0 up", fmt.Sprintf("addr add %v/32 dev wg0", b.addr(false)), fmt.Sprintf("addr add %v/128 dev wg0 nodad", b.addr(true)),
				"route add 10.5.0.0/16 dev wg0", "route add fd00:5::/48 dev wg0"} {
				b.run(t, args)
			}
			set := lease.Set{Config: lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, Network: net4, IPv6Network: net6}, Own: a.own, Peers: []lease.Record{b.own}}
			if err := a.b.Apply(t.Context(), set); err != nil {
				t.Fatal(err)
			}
			for _, six := range []bool{false, true} {
				hears(t, a, b, six)
				streams(t, a, b, six)
				streams(t, b, a, six)
			}
		})
	}
}

// bindIn opens sockets in a namespace: the library opens them anew whenever it hears that the TUN is up
// again, on whatever thread.
type bindIn struct {
	conn.Bind
	k *Kernel
}

func (b bindIn) Open(port uint16) (fns []conn.ReceiveFunc, actual uint16, err error) {
	err = b.k.Do(func() (err error) { fns, actual, err = b.Bind.Open(port); return err })
	return fns, actual, err
}

// plainConfig is what wg(8) would tell wireguard-go.
func plainConfig(t *testing.T, a *vtepNode, key wireguard.Secret, psk, endpoint string) string {
	t.Helper()
	var b strings.Builder
	own := a.b.driver.(*wireGuardDriver).public()
	fmt.Fprintf(&b, "private_key=%s\nlisten_port=51820\npublic_key=%x\nendpoint=%s\n", key.Hex(), own[:], netip.MustParseAddrPort(endpoint))
	if psk != "" {
		p, err := wireguard.ParseSecret(psk)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "preshared_key=%s\n", p.Hex())
	}
	fmt.Fprintf(&b, "allowed_ip=%v\nallowed_ip=%v\n", a.own.V4.Masked(), a.own.V6.Masked())
	return b.String()
}
