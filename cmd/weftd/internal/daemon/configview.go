package daemon

import (
	"errors"
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/choice"
	"weft/lease"
	"weft/lease/keeper"
	"weft/routing"
)

// show stores v for the status, and logs it if it is not the same as before. theirs is the source's
// configuration.
func (d *Daemon) show(g *overlay, shown choice.View, theirs routing.Network) {
	v := configView{View: shown}
	if v.Other != nil {
		v.unknown = theirs.Unknown
	}
	if v.Restart {
		v.changes = d.changes(g, theirs, v.Stays)
	}
	before := g.setConfig(v)
	if before.text() == v.text() {
		return
	}
	where := d.source.info().where
	switch {
	case v.LastGood:
		d.log.Error("the network configuration cannot be used: running on the last good one; a good one is taken "+
			"up by itself", "event", events.Config, "of", where, "cause", v.Fault, "theirs", clip(v.Other))
	case errors.Is(v.Fault, keeper.ErrNoConfig):
		d.log.Warn("the network configuration is gone; packets go on as before, and so they do after a restart",
			"event", events.Config, "of", where)
	case v.Fault != nil:
		d.log.Warn("the network configuration is not good; packets go on as before, and so they do after a restart",
			"event", events.Config, "of", where, "cause", v.Fault, "theirs", clip(v.Other))
	case v.Other != nil:
		d.log.Warn("the network configuration is not the one in use: weft reload applies it, or a restart", "event",
			events.Config, "of", where, "a_restart_changes", v.changes, "theirs", clip(v.Other))
	default:
		d.log.Info("the network configuration is the one in use again", "event", events.Config, "of", where)
	}
	for _, u := range v.unknown {
		d.log.Warn(u.String(), "of", where)
	}
	d.changed()
}

// changes lists what a restart that adopts network would change. With stays it adopts nothing.
func (d *Daemon) changes(g *overlay, network routing.Network, stays bool) []string {
	g.mu.Lock()
	u := g.chosen
	g.mu.Unlock()
	var out []string
	for _, c := range g.network.config.Diff(network) {
		if c.Seen {
			out = append(out, c.String())
		}
	}
	own := g.member.Status().Own.Subnets
	if stays {
		return append(out, "nothing, since the node's subnet "+own.String()+
			" is not in that network: the restart goes on with this configuration, unless --renumber is given")
	}
	if why := network.Unfit(own); why != "" && own != (lease.Subnets{}) && d.source.info().allocates {
		out = append(out, fmt.Sprintf("own subnet from %s to another, which cuts its pods off (%s)", own, why))
	}
	switch mtu, err := network.MTU(u); {
	case err != nil:
		out = append(out, fmt.Sprintf("nothing, since the backend would not start: %v", err))
	case mtu != g.backend.MTU():
		out = append(out, fmt.Sprintf("MTU from %d to %d", g.backend.MTU(), mtu))
	}
	if len(out) == 0 {
		out = append(out, "only settings that peers and pods do not see")
	}
	return out
}

// clip shortens the text of a configuration, for a log line or a status, and hides its secrets.
func clip(b []byte) string {
	const most = 400
	b = routing.WithoutSecrets(b)
	if len(b) <= most {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:most]), "") + "…"
}

// configView is what is shown of the source's network configuration, and what a restart would change.
type configView struct {
	choice.View
	changes []string
	unknown []routing.UnknownKey // of Other
}

func (v configView) text() string {
	return fmt.Sprint(string(v.Other), v.Fault, v.LastGood, v.changes)
}

// configState has what an overlay knows of the source's configuration. The overlay's lock
// protects it.
type configState struct {
	view     configView
	compared bool // the configurations were compared after the source had answered
	proven   bool // the one in use has been in place, with a lease
}

func (g *overlay) setConfig(v configView) (before configView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, g.config.view, g.config.compared = g.config.view, v, true
	return before
}

// prove notes that the configuration is good, so that it may be cached, and reports whether that is new.
func (g *overlay) prove() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.config.proven
	g.config.proven = true
	return !before
}

func (g *overlay) configNow() configState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config
}

func (g *overlay) isProven() bool { return g.configNow().proven }

// configStatus returns what weft status shows of it.
func configStatus(network routing.Network, v configView) control.Config {
	c := control.Config{
		InUse: string(routing.WithoutSecrets(network.Raw)), LastGood: v.LastGood, Other: clip(v.Other),
		Changes: v.changes,
		Differs: v.text() != configView{}.text(),
	}
	if v.Fault != nil {
		for line := range strings.Lines(v.Fault.Error()) {
			c.Faults = append(c.Faults, strings.TrimSpace(line))
		}
	}
	for _, u := range network.Unknown {
		c.Unknown = append(c.Unknown, u.String())
	}
	for _, u := range v.unknown {
		c.Unknown = append(c.Unknown, "not in use: "+u.String())
	}
	return c
}
