package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"weft/cmd/internal/control"
	"weft/routing"
)

// RotateKey implements control.KeyService. The record follows at once: until a peer has read it, what this
// node and the peer send each other is lost. While another weftd takes this one's place it is refused: that
// one has read the key, and would go on with it.
func (d *Daemon) RotateKey(ctx context.Context) (control.Rotated, error) {
	done, err := d.mayChange()
	if err != nil {
		return control.Rotated{}, err
	}
	defer done()
	g, waiting := d.current()
	if g == nil {
		return control.Rotated{}, fmt.Errorf("%w: there is no backend yet: %s", control.ErrRefused, waiting)
	}
	before, after, err := g.backend.RotateKey(ctx)
	if errors.Is(err, routing.ErrNoKey) {
		return control.Rotated{}, fmt.Errorf("%w: backend %s has no key: only wireguard does", control.ErrRefused,
			g.backend.Type())
	}
	if err != nil {
		return control.Rotated{}, err
	}
	g.member.SetLocal(d.local(g))
	d.log.Info("the private key is a new one", "public_key", after, "before", before)
	return control.Rotated{Before: before.String(), PublicKey: after.String()}, nil
}

// encryption is what the devices of WireGuard know of peers, by subnet; nil for another backend.
func (g *overlay) encryption(now time.Time) map[netip.Prefix]control.Encryption {
	peers, _ := g.backend.EncryptedPeers() // without those of a device that is gone just now
	if len(peers) == 0 {
		return nil
	}
	out := make(map[netip.Prefix]control.Encryption, len(peers))
	for _, p := range peers {
		x := control.Encryption{
			Device: p.Device, PublicKey: p.Key.String(), Endpoint: p.Endpoint, Handshake: p.Handshake,
			TxBytes: p.Tx, RxBytes: p.Rx, Asked: now,
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
		return "no handshake has been answered since weftd started",
			fmt.Sprintf("does a firewall between the nodes "+
				"let UDP to %v through, both ways? Does weftd run there, with the key of its record and this PSK?",
				p.Endpoint)
	case routing.PeerAnsweredBefore:
		return fmt.Sprintf("no handshake has been answered for %v", now.Sub(p.Handshake).Round(time.Second)),
			fmt.Sprintf("does the peer still run, with the key of its record, and does UDP to %v pass?", p.Endpoint)
	case routing.PeerHeard:
	}
	return "", ""
}
