package daemon

import (
	"context"
	"log/slog"
	"time"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/reach"
	"weft/lease"
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
