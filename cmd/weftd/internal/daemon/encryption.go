package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"weft/cmd/internal/control"
	"weft/routing"
)

// RotateKey implements control.KeyService. The record follows at once: until a peer has read it, what this node and the peer send each other
// is lost. While another weftd takes this one's place it is refused: that one has read the key, and would go on with it.
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

// askedWithin is how long whoever wants to see peers waits for a device to say what it knows. It is milliseconds, but of a process that hangs.
const askedWithin = 250 * time.Millisecond

// encryption is what the devices of WireGuard know of peers, by subnet; nil for another backend.
func (g *generation) encryption(now time.Time) map[netip.Prefix]control.Encryption {
	e, ok := g.backend.(*routing.Encrypter)
	if !ok {
		return nil
	}
	peers, _ := e.EncryptedPeers(askedWithin) // of a device that does not answer, or is gone just now, what it said last
	wrong := e.WrongKeys()
	out := make(map[netip.Prefix]control.Encryption, len(peers))
	for _, p := range peers {
		x := control.Encryption{
			Device: p.Device, PublicKey: p.Key.String(), Endpoint: p.Endpoint, Handshake: p.Handshake, TxBytes: p.Tx, RxBytes: p.Rx, Asked: p.Asked,
		}
		x.Likely, x.Look = p.Silence(now, wrong)
		for _, n := range p.AllowedIPs {
			out[n] = x
		}
	}
	return out
}
