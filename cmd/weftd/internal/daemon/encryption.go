package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/ops"
	"weft/routing"
)

// RotateKey implements control.Node. The record follows at once: until a peer has read it, what this node and the peer send each other
// is lost. While another weftd takes this one's place it is refused: that one has read the key, and would go on with it.
func (d *Daemon) RotateKey(ctx context.Context) (control.Rotated, error) {
	if !d.changing.TryRLock() {
		return control.Rotated{}, control.ErrReplaced
	}
	defer d.changing.RUnlock()
	if err := d.replaced(); err != nil {
		return control.Rotated{}, err
	}
	g, waiting := d.current()
	if g == nil {
		return control.Rotated{}, fmt.Errorf("%w: there is no backend yet: %s", control.ErrRefused, waiting)
	}
	e, ok := g.backend.(*routing.Encrypter)
	if !ok {
		return control.Rotated{}, fmt.Errorf("%w: backend %s has no key: only wireguard does", control.ErrRefused, g.backend.Type())
	}
	before, after, err := e.RotateKey(ctx)
	if err != nil {
		return control.Rotated{}, err
	}
	g.member.SetLocal(d.local(g))
	d.log.Info("the private key is a new one", "public_key", after, "before", before)
	return control.Rotated{Before: before.String(), PublicKey: after.String()}, nil
}

// encryption is what the devices of WireGuard know of peers, by subnet; nil for another backend.
func (g *generation) encryption(now time.Time) map[netip.Prefix]control.Encryption {
	e, ok := g.backend.(*routing.Encrypter)
	if !ok {
		return nil
	}
	peers, _ := e.EncryptedPeers() // without those of a device that is gone just now
	out := make(map[netip.Prefix]control.Encryption, len(peers))
	for _, p := range peers {
		x := control.Encryption{
			Device: p.Device, PublicKey: p.Key.String(), Endpoint: p.Endpoint, Handshake: p.Handshake, TxBytes: p.Tx, RxBytes: p.Rx, Asked: now,
		}
		x.Likely, x.Look = unheard(p, now)
		for _, n := range p.AllowedIPs {
			out[n] = x
		}
	}
	return out
}

// unheard says why a peer that packets are for is not heard, and what to look at; "" if nothing is wrong.
func unheard(p routing.EncryptedPeer, now time.Time) (likely, look string) {
	switch p.Silence(now) {
	case routing.PeerNeverAnswered:
		return "no handshake has been answered since weftd started", fmt.Sprintf("does a firewall between the nodes "+
			"let UDP to %v through, both ways? Does weftd run there, with the key of its record and with this PSK?", p.Endpoint)
	case routing.PeerAnsweredBefore:
		return fmt.Sprintf("no handshake has been answered for %v", now.Sub(p.Handshake).Round(time.Second)),
			fmt.Sprintf("does the peer still run, with the key of its record, and does UDP to %v pass?", p.Endpoint)
	}
	return "", ""
}

// encryptedPeers is encryption as the metrics have it: a peer's bytes by both of its devices are one sum, and the older handshake counts.
func (g *generation) encryptedPeers(now time.Time) (out []ops.EncryptedPeer) {
	known := g.encryption(now)
	if len(known) == 0 {
		return nil
	}
	for _, r := range g.peers() {
		all := encryptionOf(known, []netip.Prefix{r.V4, r.V6})
		if len(all) == 0 {
			continue
		}
		p := ops.EncryptedPeer{Name: r.Called(), Addr: r.PublicIP, Handshake: all[0].Handshake, Asked: all[0].Asked}
		if !p.Addr.IsValid() {
			p.Addr = r.PublicIPv6
		}
		for _, x := range all {
			p.TxBytes, p.RxBytes = p.TxBytes+x.TxBytes, p.RxBytes+x.RxBytes
			if x.Handshake.Before(p.Handshake) {
				p.Handshake = x.Handshake
			}
			if x.Asked.Before(p.Asked) {
				p.Asked = x.Asked
			}
		}
		out = append(out, p)
	}
	return out
}

// encryptionOf is what is known of one peer, once for each device that it is a peer of.
func encryptionOf(known map[netip.Prefix]control.Encryption, subnets []netip.Prefix) (out []control.Encryption) {
	for _, n := range subnets {
		if x, ok := known[n.Masked()]; ok && (len(out) == 0 || out[len(out)-1].Device != x.Device) {
			out = append(out, x)
		}
	}
	return out
}
