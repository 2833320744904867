package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/verdict"
	"weft/lease"
	"weft/routing"
)

// observeEvery is the time between two readings of the readiness, for changes that come
// with time or from a part that does not notify. eager is the same for as long as somebody
// waits for the readiness, but no longer than eagerFor.
const (
	observeEvery = time.Second
	eager        = 50 * time.Millisecond
	eagerFor     = 10 * time.Second
)

// prove lets the network configuration of g be cached once g is ready, since that shows that it works. Only
// observe calls it.
func (d *Daemon) prove(g *overlay, reasons []control.Verdict) {
	if len(reasons) == 0 && g != nil && g.prove() {
		d.log.Debug("the network configuration is good: it is in place, with a lease")
		g.member.Proven()
	}
}

// tellDataPath tells the member whether packets are carried, if it is one that publishes that. Only
// observe calls it.
func (d *Daemon) tellDataPath(g *overlay, s *control.Snapshot) {
	if g == nil {
		return
	}
	m, ok := g.member.(conditioned)
	if !ok {
		return
	}
	now := dataPathNews{strings.Join(control.Texts(verdict.Broken(s)), "; "), s.Former, alone(s)}
	if g.told == nil || *g.told != now {
		g.told = &now
		m.SetDataPath(now.broken, now.former, now.alone)
	}
}

// dataPathNews is what the member was told about the data path.
type dataPathNews struct{ broken, former, alone string }

// formerEvery is the time between two searches for gateways of former subnets.
const formerEvery = 10 * time.Second

// findFormer checks whether bridges have gateways of subnets that are not ours any more. Only observe
// calls it.
func (d *Daemon) findFormer(g *overlay) {
	if g == nil {
		return
	}
	set, _ := g.state()
	if set.Own.Subnets == (lease.Subnets{}) || set.Own.Subnets == g.lookedFor &&
		time.Since(g.looked) < formerEvery {
		return
	}
	g.looked, g.lookedFor = time.Now(), set.Own.Subnets
	found, err := routing.FormerGateways(g.network.config.NetworkConfig, set.Own.Subnets)
	if err != nil {
		d.log.Debug("whether there are pods of a former subnet is not known", "reason", err)
		return
	}
	why := ""
	if len(found) > 0 {
		why = formerText(strings.Join(found, ", "), set.Own.Subnets.String())
	}
	g.mu.Lock()
	changed := g.formerWhy != why
	g.formerWhy = why
	g.mu.Unlock()
	switch {
	case changed && why != "":
		d.log.Warn("pods of a former subnet", "event", lease.EventSubnetChanged, "reason", why)
	case changed:
		d.log.Info("no pods of a former subnet any more")
	}
}

// formerText says what bridges in the overlay's network mean that are not in this node's subnet.
func formerText(bridges, own string) string {
	return fmt.Sprintf("%s is within the overlay's network, and not in this node's subnet %s: pods with an "+
		"address of it are cut off from other nodes. "+
		"If that subnet was this node's, delete these pods, and they are made anew; if another program made the "+
		"bridge, as Docker does, give that another network", bridges, own)
}

// observe reads the readiness when something has changed, and once a second. It logs
// changes of the readiness, and reports them to systemd.
func (d *Daemon) observe(ctx context.Context) error {
	tick := time.NewTimer(0)
	defer tick.Stop()
	var noPeer, full told
	var last []control.Verdict
	begun := time.Now()
	first, notReady := true, begun
	kept, rangeSeen := time.Now(), time.Time{}
	var renewed renewals
	for {
		g, waiting := d.current()
		d.findFormer(g)
		g.probe(false)
		s := d.snapshotOf(g, waiting, 0)
		renewed.tell(s.Lease.Own, d.cfg.RenewMargin, d.log)
		d.tellDataPath(g, s)
		why, _ := verdict.NoPeer(s)
		noPeer.tell(d.log, why, "there is no lack of usable peers any more")
		if time.Since(rangeSeen) >= rangeEvery {
			rangeSeen = time.Now()
			full.tell(d.log, verdict.RangeUse(s), "there is room for nodes in the network again")
		}
		now := verdict.Reasons(s)
		d.prove(g, now)
		d.process.systemd.Readiness(control.Texts(now), verdict.Started(s, now, time.Since(begun)))
		if first || !slices.Equal(now, last) {
			if len(last) == 0 {
				notReady = time.Now()
			}
			d.logReadiness(first, last, now, time.Since(notReady))
			last, first = now, false
		}
		wait := observeEvery
		if len(now) > 0 && time.Since(notReady) < eagerFor {
			wait = eager
		}
		if time.Since(kept) >= wait { // not more often, even if there are many changes
			kept = time.Now()
			d.keepSubnetFile()
		}
		tick.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-d.standing.nudge:
		case <-tick.C:
		}
	}
}

// rangeEvery is the time between looks at how many subnets are taken, since they cost work for each record.
const rangeEvery = 10 * time.Second

// told is whether the log has a note that has not ended yet.
type told bool

// tell logs why when it begins, and end when it has ended.
func (t *told) tell(log *slog.Logger, why control.Verdict, end string) {
	now := why.Code != ""
	switch before := bool(*t); {
	case now && !before:
		log.Warn(why.Text, "code", why.Code)
	case before && !now:
		log.Info(end)
	}
	*t = told(now)
}

// watchdog tells systemd that the daemon is alive as long as its state can be
// read, so that systemd restarts a daemon in which a lock is never released.
func (d *Daemon) watchdog(ctx context.Context) error {
	d.process.systemd.Watchdog(ctx, func() bool { d.Snapshot(0); return true })
	return nil
}

// logReadiness logs the changes that an operator waits for or has to know of.
func (d *Daemon) logReadiness(first bool, last, now []control.Verdict, after time.Duration) {
	switch {
	case len(now) == 0:
		d.log.Info("ready", "event", events.Ready, "after", after.Truncate(time.Millisecond))
	case !first && len(last) == 0:
		d.log.Warn("not ready any more", "event", events.NotReady, "reasons", control.Texts(now), "codes",
			control.Codes(now))
	default:
		d.log.Debug("not ready", "reasons", control.Texts(now), "codes", control.Codes(now))
	}
}
