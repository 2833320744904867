package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/choice"
	"weft/lease"
	"weft/routing"
)

// show stores v for the status, and logs it if it is not the same as before. theirs is the source's configuration.
func (d *Daemon) show(g *overlay, shown choice.View, theirs lease.NetworkConfig) {
	v := configView{View: shown}
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
		d.log.Error("the network configuration cannot be used: running on the last good one; a good one is taken up by itself", "event", events.Config, "of", where, "cause", v.Fault, "theirs", clip(v.Other))
	case errors.Is(v.Fault, lease.ErrNoConfig):
		d.log.Warn("the network configuration is gone; packets go on as before, and so they do after a restart", "event", events.Config, "of", where)
	case v.Fault != nil:
		d.log.Warn("the network configuration is not good; packets go on as before, and so they do after a restart", "event", events.Config, "of", where, "cause", v.Fault, "theirs", clip(v.Other))
	case v.Other != nil:
		d.log.Warn("the network configuration is not the one in use: weft reload applies it, or a restart", "event", events.Config, "of", where, "a_restart_changes", v.changes, "theirs", clip(v.Other))
	default:
		d.log.Info("the network configuration is the one in use again", "event", events.Config, "of", where)
	}
	for _, u := range routing.UnknownKeys(v.Other) {
		d.log.Warn(u.String(), "of", where)
	}
	d.changed()
}

// changes lists what a restart that adopts network would change. With stays it adopts nothing.
func (d *Daemon) changes(g *overlay, network lease.NetworkConfig, stays bool) []string {
	g.mu.Lock()
	u := g.chosen
	g.mu.Unlock()
	var out []string
	change := func(what string, now, then any) {
		if now != then {
			out = append(out, fmt.Sprintf("%s from %v to %v", what, now, then))
		}
	}
	before := g.network.config
	change("type", before.BackendType, network.BackendType)
	nets := func(c lease.NetworkConfig) string { return lease.Subnets{V4: c.Network, V6: c.IPv6Network}.String() }
	change("network", nets(before), nets(network))
	own := g.member.Status().Own.Subnets
	if stays {
		return append(out, "nothing, since the node's subnet "+own.String()+" is not in that network: the restart goes on with this configuration, unless --renumber is given")
	}
	if why := network.Unfit(own); why != "" && own != (lease.Subnets{}) && d.source.info().allocates {
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
