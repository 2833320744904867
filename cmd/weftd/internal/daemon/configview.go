package daemon

import (
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/choice"
	"weft/routing"
)

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
