package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"weft/cmd/internal/events"
	"weft/lease"
	"weft/routing"
)

// offer is the network configuration that the source has now.
type offer struct {
	// known is false as long as the source has not answered.
	known bool
	// raw is the text, nil for none. fault says what is wrong with it, or that there is none; if it
	// is nil, network is the parsed text.
	raw     []byte
	network lease.NetworkConfig
	fault   error
}

// takeUp is the error of a generation that ends because another one, which is ready, takes its place.
type takeUp struct{ generation *generation }

func (*takeUp) Error() string { return "another network configuration is taken up" }

// unfitError is the error of a generation whose configuration does not work.
type unfitError struct {
	why   []string
	again bool // the configuration may not be to blame: it is tried again
}

func (e *unfitError) Error() string {
	return "it was tried, and did not come into place; a restart tries it again: " + strings.Join(e.why, "; ")
}

// backendError says that the backend of a network configuration could not be made.
type backendError struct{ err error }

func (e *backendError) Error() string { return e.err.Error() }
func (e *backendError) Unwrap() error { return e.err }

// trialFor is how long weftd waits for a new configuration to be in place, with a lease, before the last
// good one takes its place again, since pods may have no network meanwhile. faultFor is the same for a
// configuration that has its lease and whose backend reports an error.
const (
	trialFor = 30 * time.Second
	faultFor = 3 * time.Second
)

// trial is that time for one configuration. There is one only if there is a last good configuration.
type trial struct {
	on            bool
	began, faulty time.Time
}

// failed reports whether the time is over; proven ends it.
func (t *trial) failed(proven, held, fault bool, now time.Time) bool {
	switch {
	case proven:
		t.on = false
	case !held || !fault:
		t.faulty = time.Time{}
	case t.faulty.IsZero():
		t.faulty = now
	}
	return t.on && (now.Sub(t.began) > trialFor || !t.faulty.IsZero() && now.Sub(t.faulty) > faultFor)
}

// compareEvery is the time between comparisons with what the source has; compareSoon is the same before the
// first one after the source was heard, for which the readiness waits.
const (
	compareEvery = time.Second
	compareSoon  = 20 * time.Millisecond
)

// retryFirst and retryMost bound the wait before a configuration whose backend could not be made is
// tried again; the attempt does not disturb the generation in use.
const retryFirst, retryMost = 5 * time.Second, 5 * time.Minute

// refusal is the last configuration that was tried and did not work.
type refusal struct {
	raw   string
	why   error
	wait  time.Duration // before it is tried again; 0 for never
	until time.Time
}

// refuse remembers that raw does not work. again says that it may be tried again.
func (d *Daemon) refuse(raw []byte, why error, again bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := refusal{raw: string(raw), why: why}
	if again {
		r.wait = retryFirst
		if d.last.raw == r.raw {
			r.wait = min(2*d.last.wait, retryMost)
		}
		r.until = time.Now().Add(r.wait)
	}
	d.last = r
}

// refusedNow returns why raw is not tried now; nil if it may be.
func (d *Daemon) refusedNow(raw []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.last; r.why != nil && r.raw == string(raw) && (r.wait == 0 || time.Now().Before(r.until)) {
		return r.why
	}
	return nil
}

// refused reports whether raw is not to be tried now.
func (d *Daemon) refused(raw []byte) bool { return d.refusedNow(raw) != nil }

// watchConfig compares the source's configuration with the one in use. Until both have been the same once,
// weftd adopts the source's as soon as it works: a node that started with its last good configuration, because
// the source's had a fault, so needs no restart when that is mended. Afterwards only a reload or a restart adopts a change.
func (d *Daemon) watchConfig(ctx context.Context, g *generation) error {
	trial := trial{on: !g.isProven() && d.lastGood() != nil, began: time.Now()}
	for {
		o := d.source.offered(g.member.Status())
		if next := d.compare(ctx, g, o); next != nil {
			return next
		}
		wait := compareEvery
		if !g.isCompared() {
			wait = compareSoon
		}
		if st := g.member.Status(); trial.failed(g.isProven(), st.State == lease.Held, g.backend.Status().LastError != "", time.Now()) {
			return &unfitError{why: d.Reasons(), again: st.StoreErr != nil || st.StoreSeen.IsZero()}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case a := <-d.adopt:
			timer.Stop()
			if next := d.take(ctx, g, a); next != nil {
				return next
			}
		case <-timer.C:
		}
	}
}

// compare compares the source's configuration o with the one in use. A *takeUp has the generation that is to
// take g's place; nil means that g goes on.
func (d *Daemon) compare(ctx context.Context, g *generation, o offer) error {
	settled := g.isSettled()
	v := configView{other: o.raw, lastGood: !settled && g.isProven()}
	switch {
	case !o.known:
		return nil
	case o.fault != nil:
		v.fault = o.fault
	case o.network.Equal(g.footing.network):
		v = configView{}
		g.settle()
	case settled:
		v.changes = d.changes(g, o.network)
	default:
		if v.fault = d.unfit(g, o.network); v.fault == nil {
			v.fault = d.refusedNow(o.raw)
		}
		if v.fault != nil {
			break
		}
		next, err := d.offeredGeneration(ctx, g, o)
		if err == nil {
			return &takeUp{next}
		}
		if ctx.Err() != nil {
			return nil
		}
		d.refuse(o.raw, fmt.Errorf("it cannot be served here, and is tried again: %w", err), true)
		v.fault = d.refusedNow(o.raw)
	}
	d.show(g, v)
	return nil
}

// offeredGeneration makes the generation that serves o in g's place. While another process has its port it is none: g goes on, and the
// lease says what it said.
func (d *Daemon) offeredGeneration(ctx context.Context, g *generation, o offer) (*generation, error) {
	next, err := d.newGeneration(ctx, footing{
		node: g.footing.node, network: o.network, raw: o.raw, publicIP: g.footing.publicIP, publicIPv6: g.footing.publicIPv6,
	}, nil)
	if err != nil || next.plane == nil || routing.FactsOf(o.network).Port == routing.FactsOf(g.footing.network).Port {
		return next, err // g itself may have the port
	}
	if err := next.portFault(); err != nil {
		next.close()
		return nil, &backendError{err}
	}
	return next, nil
}

// show stores v for the status, and logs it if it is not the same as before.
func (d *Daemon) show(g *generation, v configView) {
	before := g.setConfig(v)
	if before.text() == v.text() {
		return
	}
	where := d.source.where()
	switch {
	case v.lastGood:
		d.log.Error("the network configuration cannot be used: running on the last good one; a good one is taken up by itself", "event", events.Config, "of", where, "cause", v.fault, "theirs", clip(v.other))
	case errors.Is(v.fault, lease.ErrNoConfig):
		d.log.Warn("the network configuration is gone; packets go on as before, and so they do after a restart", "event", events.Config, "of", where)
	case v.fault != nil:
		d.log.Warn("the network configuration is not good; packets go on as before, and so they do after a restart", "event", events.Config, "of", where, "cause", v.fault, "theirs", clip(v.other))
	case v.other != nil:
		d.log.Warn("the network configuration is not the one in use: weft reload applies it, or a restart", "event", events.Config, "of", where, "a_restart_changes", v.changes, "theirs", clip(v.other))
	default:
		d.log.Info("the network configuration is the one in use again", "event", events.Config, "of", where)
	}
	for _, u := range routing.UnknownKeys(v.other) {
		d.log.Warn(u.String(), "of", where)
	}
	d.changed()
}

// unfit says why this node cannot adopt network: it has pods in a subnet outside it, which would be cut off.
func (d *Daemon) unfit(g *generation, network lease.NetworkConfig) error {
	if !g.isProven() || d.cfg.Renumber {
		return nil
	}
	st := g.member.Status()
	if !d.source.allocates() && (st.State == lease.Expired || st.State == lease.Lost) {
		return nil // the cluster gives the node another subnet
	}
	if err := network.Contains(st.Own.Subnets); err != nil {
		return fmt.Errorf("%w; to renumber the node all the same, restart weftd with --renumber", err)
	}
	return nil
}

// changes lists what a restart that adopts network would change.
func (d *Daemon) changes(g *generation, network lease.NetworkConfig) []string {
	g.mu.Lock()
	u := g.chosen
	g.mu.Unlock()
	var out []string
	change := func(what string, now, then any) {
		if now != then {
			out = append(out, fmt.Sprintf("%s from %v to %v", what, now, then))
		}
	}
	before := g.footing.network
	change("type", before.BackendType, network.BackendType)
	nets := func(c lease.NetworkConfig) string { return lease.Subnets{V4: c.Network, V6: c.IPv6Network}.String() }
	change("network", nets(before), nets(network))
	own := g.member.Status().Own.Subnets
	if d.unfit(g, network) != nil {
		return append(out, "nothing, since the node's subnet "+own.String()+" is not in that network: the restart goes on with this configuration, unless --renumber is given")
	}
	if why := network.Unfit(own); why != "" && own != (lease.Subnets{}) && d.source.allocates() {
		out = append(out, fmt.Sprintf("own subnet from %s to another, which cuts its pods off (%s)", own, why))
	}
	if mtu, err := routing.OverlayMTU(network, u); err != nil {
		out = append(out, fmt.Sprintf("nothing, since the backend would not start: %v", err))
	} else {
		change("MTU", g.backend.MTU(), mtu)
	}
	change("port", routing.FactsOf(before).Port, routing.FactsOf(network).Port)
	change("SubnetLen", before.SubnetLen, network.SubnetLen)
	change("IPv6SubnetLen", before.IPv6SubnetLen, network.IPv6SubnetLen)
	change("VNI", vni(before), vni(network))
	if e := encryptChange(before, network); e != "" {
		out = append(out, e)
	}
	if psk(before) != psk(network) {
		out = append(out, "PSK: this node and those that have the other one do not hear each other")
	}
	if len(out) == 0 {
		out = append(out, "only settings that peers and pods do not see")
	}
	return out
}

// vni is the number of the overlay in the network configuration, which every node has to have alike.
func vni(c lease.NetworkConfig) string {
	var raw struct{ VNI json.RawMessage }
	if json.Unmarshal(c.Backend, &raw) != nil || len(raw.VNI) == 0 {
		return "1" // flannel's default
	}
	return string(raw.VNI)
}

// psk is the key in the network configuration that every node has to have alike, as it is written. It is to be compared, and not to be shown.
func psk(c lease.NetworkConfig) string {
	var raw struct{ PSK string }
	if !strings.EqualFold(c.BackendType, "wireguard") && encrypt(c) == "" || json.Unmarshal(c.Backend, &raw) != nil {
		return ""
	}
	return raw.PSK
}

// encrypt is what type auto is told to encrypt, on which the records depend: it has to be alike too.
func encrypt(c lease.NetworkConfig) string {
	var raw struct{ Encrypt string }
	if !strings.EqualFold(c.BackendType, "auto") || json.Unmarshal(c.Backend, &raw) != nil {
		return ""
	}
	return strings.ToLower(raw.Encrypt)
}

// encryptChange says what another value of the key Encrypt means; "" if there is none. Nodes of type wireguard are peers of those that have it.
func encryptChange(before, network lease.NetworkConfig) string {
	now, then := encrypt(before), encrypt(network)
	switch auto := strings.EqualFold(before.BackendType, "auto") && strings.EqualFold(network.BackendType, "auto"); {
	case now == then:
		return ""
	case auto && (now == "" || then == ""):
		return fmt.Sprintf("Encrypt from %q to %q: this node and those that have the other one do not hear each other", now, then)
	}
	return fmt.Sprintf("Encrypt from %q to %q", now, then)
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
