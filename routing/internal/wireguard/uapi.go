package wireguard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// text is c in WireGuard's configuration protocol (https://www.wireguard.com/xplatform/). It has secrets in
// it.
func text(c wgtypes.Config) string {
	var b strings.Builder
	line := func(key string, value any) { _, _ = fmt.Fprintf(&b, "%s=%v\n", key, value) }
	if c.PrivateKey != nil {
		line("private_key", hex.EncodeToString(c.PrivateKey[:]))
	}
	if c.ListenPort != nil {
		line("listen_port", *c.ListenPort)
	}
	for _, p := range c.Peers {
		line("public_key", hex.EncodeToString(p.PublicKey[:]))
		if p.Remove {
			line("remove", true)
			continue
		}
		if p.UpdateOnly {
			line("update_only", true)
		}
		if p.PresharedKey != nil {
			line("preshared_key", hex.EncodeToString(p.PresharedKey[:]))
		}
		if p.Endpoint != nil {
			line("endpoint", p.Endpoint)
		}
		if p.ReplaceAllowedIPs {
			line("replace_allowed_ips", true)
		}
		for i := range p.AllowedIPs {
			line("allowed_ip", &p.AllowedIPs[i])
		}
		if p.PersistentKeepaliveInterval != nil {
			line("persistent_keepalive_interval", int(p.PersistentKeepaliveInterval.Seconds()))
		}
	}
	return b.String()
}

var errNoKey = errors.New("the device lists a peer without a key")

// parse reads what a device says of its peers in that protocol, and passes over secrets and settings.
func parse(text string) (*wgtypes.Device, error) {
	d := &wgtypes.Device{}
	var sec int64
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if key == "public_key" {
			k, err := hex.DecodeString(value)
			if err != nil || len(k) != wgtypes.KeyLen {
				return nil, errNoKey
			}
			d.Peers = append(d.Peers, wgtypes.Peer{PublicKey: wgtypes.Key(k)})
			continue
		}
		if len(d.Peers) == 0 {
			continue
		}
		p := &d.Peers[len(d.Peers)-1]
		var err error
		switch key {
		case "endpoint":
			var a netip.AddrPort
			a, err = netip.ParseAddrPort(value)
			p.Endpoint = net.UDPAddrFromAddrPort(a)
		case "last_handshake_time_sec":
			sec, err = strconv.ParseInt(value, 10, 64)
		case "last_handshake_time_nsec":
			var nsec int64
			if nsec, err = strconv.ParseInt(value, 10, 64); sec != 0 || nsec != 0 {
				p.LastHandshakeTime = time.Unix(sec, nsec)
			}
		case "rx_bytes":
			p.ReceiveBytes, err = strconv.ParseInt(value, 10, 64)
		case "tx_bytes":
			p.TransmitBytes, err = strconv.ParseInt(value, 10, 64)
		case "allowed_ip":
			var n *net.IPNet
			if _, n, err = net.ParseCIDR(value); err == nil {
				p.AllowedIPs = append(p.AllowedIPs, *n)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the device's %s: %w", key, err)
		}
	}
	return d, nil
}
