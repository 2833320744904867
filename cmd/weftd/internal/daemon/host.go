package daemon

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/reach"
	"weft/lease"
	"weft/routing"
	"weft/routing/presence"
)

// lookupTimeout bounds how long the store's names may take to resolve.
const lookupTimeout = 2 * time.Second

// cutOff says why the overlay of network would cut this host off from src; "" if it
// would not, or if that cannot be found out.
func cutOff(ctx context.Context, place options.Place, src source, network lease.NetworkConfig,
	log *slog.Logger) string {
	if place.Elsewhere {
		return "" // the overlay's routes are not where the store is asked
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	why, err := reach.Store(network, "the "+src.info().name, reach.Addrs(ctx, src.info().routed))
	if err != nil {
		log.Debug("the way to the "+src.info().name+" is not known", "reason", err)
	}
	return why
}

// storeRouteEvery is the time between questions to the kernel how it reaches the store.
const storeRouteEvery = 5 * time.Second

// watchStoreRoute notes when the overlay in use cuts this host off from the store. That can happen
// because with a cached configuration packets flow before that is checked, and because routes
// change. Packets go on; the status says why the store is silent.
func (d *Daemon) watchStoreRoute(ctx context.Context, g *overlay) error {
	if g.elsewhere() != nil {
		return nil
	}
	for {
		now, err := reach.Store(g.network.config.NetworkConfig, "the "+d.source.info().name, d.local(g).Store)
		if err != nil {
			d.log.Debug("the way to the "+d.source.info().name+" is not known", "reason", err)
		} else if before := g.setStoreCut(now); now != before {
			if now != "" {
				d.log.Warn("the overlay cuts the "+d.source.info().name+" off", "reason", now)
			} else {
				d.log.Info("the overlay does not cut the " + d.source.info().name + " off any more")
			}
			d.changed()
		}
		if !pause(ctx, storeRouteEvery) {
			return nil
		}
	}
}

// setStoreCut stores why the store is cut off, and returns what was stored before.
func (g *overlay) setStoreCut(why string) (before string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, g.storeCut = g.storeCut, why
	return before
}

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
