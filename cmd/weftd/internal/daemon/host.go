package daemon

import (
	"context"
	"errors"
	"syscall"
	"time"

	"weft/routing"
)

// hostPatience is how long a process that serves the network on this host already has to end: the
// one before us may be on its way out.
const hostPatience = 5 * time.Second

// portEvery is the time between tries while a stranger has the port.
const portEvery = time.Second

// claimHost makes sure that no other weftd serves the network on this host. Nothing is made before it
// has returned. What this process has it has until it ends.
func (d *Daemon) claimHost(ctx context.Context, k *routing.Kernel, f footing) error {
	ctx, cancel := context.WithTimeout(ctx, hostPatience)
	defer cancel()
	return d.unlessTaken("claim on the network", d.claim.Network(ctx, k, f.network))
}

// unlessTaken is err if another weftd has what was to be claimed. A claim that fails for another reason, without
// a descriptor perhaps, is something that the daemon goes on without.
func (d *Daemon) unlessTaken(claim string, err error) error {
	if taken := new(routing.HostTakenError); errors.As(err, &taken) {
		return err
	}
	d.lack(claim, err)
	return nil
}

// claimPort does the same for the port that g's data plane is to listen on, before anything is written. As long as
// a process that is no weftd has it, a flanneld perhaps, it waits: the lease of a node that carries
// nothing would only mislead its peers.
func (d *Daemon) claimPort(ctx context.Context, g *generation) error {
	port := routing.FactsOf(g.footing.network).Port
	if g.plane == nil || port == 0 {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, hostPatience)
	defer cancel()
	if err := d.unlessTaken("claim on the port", d.claim.Port(patient, g.kernel, port)); err != nil {
		return err
	}
	for {
		err := routing.PortFree(g.kernel, g.underlay(), port)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil // whatever else there is the backend finds
		}
		d.wait("port: " + err.Error())
		if !pause(ctx, portEvery) {
			return context.Cause(ctx)
		}
	}
}
