package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/verdict"
	"weft/lease/belief"
	"weft/routing"
	"weft/routing/presence"
)

// errNodeChanged is the error of an overlay whose network turned out to be outdated.
var errNodeChanged = errors.New("the node is not what it was")

// serveNetworks serves one network configuration after the other, as choice says, until ctx ends.
func (d *Daemon) serveNetworks(ctx context.Context) error {
	if s := d.upgrades.arrived; s != nil && s.Idle {
		d.arrivedNow()
	}
	c := &choice.Choice{Renumber: d.cfg.Renumber, Assigned: !d.source.info().allocates}
	var asked Network
	for step := d.next(c, choice.Input{}); ; {
		if step.Do == choice.Wait && step.Why != nil {
			d.wait(step.Why.Error())
		}
		if !pause(ctx, step.Again) {
			return nil
		}
		switch step.Do {
		case choice.Wait:
			var o choice.Offer
			asked, o = d.ask(ctx)
			step = d.next(c, choice.Input{Offer: o})
		case choice.Open:
			step = d.openAndServe(ctx, c, asked, nil)
		case choice.GoBack:
			if step.Why != nil {
				d.log.Error("the network configuration cannot be served: going back to the last good one", "event",
					events.Config, "cause", step.Why)
			}
			switch f, cached := d.lastGood.read(); {
			case cached != nil:
				d.lastGood.forget()
				step = d.openAndServe(ctx, c, f, cached)
			case step.Why != nil:
				return step.Why
			default:
				step = d.next(c, choice.Input{})
			}
		default:
			return step.Why
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// next asks c what follows from in.
func (d *Daemon) next(c *choice.Choice, in choice.Input) choice.Step {
	in.Now, in.LastGood = time.Now(), d.lastGood.network()
	return c.Next(in)
}

// ask asks the source, once.
func (d *Daemon) ask(ctx context.Context) (Network, choice.Offer) {
	f, why := d.source.ask(ctx, d.asked)
	if why != "" {
		return f, choice.Offer{Fault: errors.New(why)}
	}
	d.identify(f.node)
	return f, choice.Offer{Known: true, Network: f.choice()}
}

func (f Network) choice() choice.Network {
	return choice.Network{Network: f.config}
}

// openAndServe serves f, and each network that takes its place without a gap. It returns what follows.
func (d *Daemon) openAndServe(ctx context.Context, c *choice.Choice, f Network,
	cached *belief.Cached) choice.Step {
	// No other configuration helps against a fault of this host's. After an upgrade the program before goes on.
	final := func(err error) bool {
		taken := (*presence.HostTakenError)(nil)
		return errors.As(err, &taken) || err != nil && d.upgrades.arrival.Pending()
	}
	g, err := d.newOverlay(ctx, f, cached)
	switch {
	case err != nil && final(err):
		return choice.Step{Do: choice.Fail, Why: err}
	case err != nil:
		return d.next(c, choice.Input{OpenErr: err})
	}
	for {
		after, err := d.serve(ctx, c, g)
		if ctx.Err() != nil {
			if after.next != nil {
				after.next.close()
			}
			return choice.Step{}
		}
		if after.next == nil && final(err) {
			return choice.Step{Do: choice.Fail, Why: err}
		}
		d.setOverlay(nil)
		switch {
		case after.next != nil:
			g = after.next
			d.log.Info("taking up the network configuration", "event", events.Config, "of", d.source.info().where,
				"config", string(routing.WithoutSecrets(g.network.config.Raw)))
		case after.decided:
			return after.step
		case errors.Is(err, errNodeChanged):
			d.log.Info("starting over", "event", events.Config, "because", err)
			return d.next(c, choice.Input{})
		default: // another process may have the port, which is not the configuration's fault
			return d.next(c, choice.Input{Running: &g.running, Ended: err,
				Blameless: errors.Is(err, syscall.EADDRINUSE)})
		}
	}
}

// succession is what choice has follow an overlay: next, which is ready, or else step.
type succession struct {
	decided bool
	next    *overlay
	step    choice.Step
}

// watchConfig shows how the source's network configuration relates to g's, until ctx ends or another is to
// follow.
func (d *Daemon) watchConfig(ctx context.Context, c *choice.Choice, g *overlay) succession {
	var good *choice.Network
	if !g.isProven() {
		good = d.lastGood.network()
	}
	var asked *adoption
	for {
		in := d.seen(g)
		in.LastGood = good
		if asked != nil {
			in.Reload, in.Offer = true, asked.offer
		}
		step := c.Next(in)
		var does []string
		if step.Do == choice.Open {
			if asked != nil {
				does = d.changes(g, step.Network.Network, false)
			}
			next, err := d.offeredOverlay(ctx, g, step.Network)
			if err == nil {
				if asked != nil {
					asked.answer <- adopted{does: does}
				}
				return succession{decided: true, next: next}
			}
			if ctx.Err() != nil {
				return succession{}
			}
			in.OpenErr = err
			step = c.Next(in)
		}
		if asked != nil {
			asked.answer <- adopted{same: step.Why == nil, fault: step.Why}
			asked = nil
			continue
		}
		if step.View != nil {
			d.show(g, *step.View, in.Offer.Network.Network)
		}
		if step.Do != choice.Keep {
			return succession{decided: true, step: step}
		}
		timer := time.NewTimer(step.Again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return succession{}
		case a := <-d.reloads.adopt:
			asked = &a
		case <-timer.C:
		}
		timer.Stop()
	}
}

// seen is what choice goes by while g serves.
func (d *Daemon) seen(g *overlay) choice.Input {
	st := g.member.Status()
	in := choice.Input{
		Now: time.Now(), Running: &g.running, Offer: d.source.offered(st),
		Lease: st.State, Own: st.Own.Subnets, Silent: st.StoreErr != nil || st.StoreSeen.IsZero(),
	}
	if !g.isProven() { // on trial, perhaps
		in.Unready, in.Fault = control.Texts(verdict.Reasons(d.Snapshot(0))), g.backend.Status().LastError != ""
	}
	in.InPlace = g.isProven()
	return in
}

// offeredOverlay makes the overlay that serves n in g's place. While another process has its port it is
// none: g goes on, and the lease says what it said.
func (d *Daemon) offeredOverlay(ctx context.Context, g *overlay, n *choice.Network) (*overlay, error) {
	next, err := d.newOverlay(ctx, Network{
		node: g.network.node, config: n.Network, publicIP: g.network.publicIP, publicIPv6: g.network.publicIPv6,
	}, nil)
	if err != nil || next.plane == nil || n.Facts().Port == g.network.config.Facts().Port {
		return next, err // g itself may have the port
	}
	if err := next.portFault(); err != nil {
		next.close()
		return nil, &choice.BackendError{Err: err}
	}
	return next, nil
}

// readNetConfig reads and checks a network configuration file.
func readNetConfig(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if _, err := routing.Parse(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
