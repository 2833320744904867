package daemon

import (
	"fmt"
	"strings"

	"weft/cmd/internal/control"
	"weft/routing"
)

// configView says how the source's network configuration differs from the one in use; it is zero if
// it does not.
type configView struct {
	other    []byte   // its text; nil for none
	fault    error    // why it cannot be used; nil if it could
	lastGood bool     // this start asked for it, and runs on the last good one instead
	changes  []string // what a restart would change
}

func (v configView) text() string {
	return fmt.Sprint(string(v.other), v.fault, v.lastGood, v.changes)
}

// configState has what a generation knows of the source's configuration. The generation's lock
// protects it.
type configState struct {
	view     configView
	compared bool // the configurations were compared after the source had answered
	settled  bool // the source has had the one in use, so that only a restart adopts another
	proven   bool // the one in use has been in place, with a lease
}

func (g *generation) setConfig(v configView) (before configView) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, g.config.view, g.config.compared = g.config.view, v, true
	return before
}

func (g *generation) settle() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.config.settled = true
}

// prove notes that the configuration is good, so that it may be cached, and reports whether that is new.
func (g *generation) prove() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := g.config.proven
	g.config.proven = true
	return !before
}

func (g *generation) configNow() configState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.config
}

func (g *generation) isProven() bool  { return g.configNow().proven }
func (g *generation) isSettled() bool { return g.configNow().settled }

// configStatus returns what weft status shows of it.
func configStatus(raw []byte, v configView) control.Config {
	c := control.Config{
		InUse: string(routing.WithoutSecrets(raw)), LastGood: v.lastGood, Other: clip(v.other), Changes: v.changes,
		Differs: v.text() != configView{}.text(),
	}
	if v.fault != nil {
		for line := range strings.Lines(v.fault.Error()) {
			c.Faults = append(c.Faults, strings.TrimSpace(line))
		}
	}
	for _, u := range routing.UnknownKeys(raw) {
		c.Unknown = append(c.Unknown, u.String())
	}
	for _, u := range routing.UnknownKeys(v.other) {
		c.Unknown = append(c.Unknown, "not in use: "+u.String())
	}
	return c
}
