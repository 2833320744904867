package daemon

import (
	"context"
	"errors"
	"syscall"
	"time"

	"weft/cmd/weftd/internal/choice"
	"weft/routing"
	"weft/routing/presence"
)

// hostPatience is how long we wait for another process that serves the network on this host, since it may
// be our predecessor, which is about to end.
const hostPatience = 5 * time.Second

// portEvery is the time between tries while a process that is no weftd has the port.
const portEvery = time.Second

// claimHost makes sure that no other weftd serves the network on this host. Nothing is made before it has
// returned. The claim lasts until this process ends.
func (d *Daemon) claimHost(ctx context.Context, k *routing.Kernel, f Network) error {
	ctx, cancel := context.WithTimeout(ctx, hostPatience)
	defer cancel()
	return d.unlessTaken("claim on the network", d.process.claim.Network(ctx, k, f.config.NetworkConfig))
}

// unlessTaken returns err if it says that another weftd has the claim. If a claim fails for another reason,
// such as a lack of descriptors, the daemon notes that and goes on without it.
func (d *Daemon) unlessTaken(claim string, err error) error {
	if taken := new(presence.HostTakenError); errors.As(err, &taken) {
		return err
	}
	d.degraded.note(d.log, claim, err)
	return nil
}

// portFault is why g's backend cannot listen on its port, before anything is written; nil if it can.
func (g *overlay) portFault() error {
	f := g.network.config.Facts()
	return presence.PortFree(g.outside, g.underlay(), f.Port, f.Port6)
}

// claimPort makes sure, before anything is written, that the port is free on which g's data plane is to
// listen. As long as a process that is no weftd has it, perhaps a flanneld, claimPort waits: the lease of a
// node that carries no packets would only mislead its peers. If there is a last good network configuration,
// that comes back after a while.
func (d *Daemon) claimPort(ctx context.Context, g *overlay) error {
	port := g.network.config.Facts().Port
	if g.plane == nil || port == 0 {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, hostPatience)
	defer cancel()
	if err := d.unlessTaken("claim on the port", d.process.claim.Port(patient, g.outside, port)); err != nil {
		return err
	}
	if g.under4or6 {
		return nil // the socket is there already
	}
	for began := time.Now(); ; {
		err := g.portFault()
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil // the backend reports any other fault
		}
		d.upgrades.arrival.Settle() // the port may be one that was left and that is not wanted
		if time.Since(began) > choice.FaultFor && !g.isProven() && d.lastGood.network() != nil {
			return err
		}
		d.wait("port: " + err.Error() + d.ofOneUser())
		if !pause(ctx, portEvery) {
			return context.Cause(ctx)
		}
	}
}
