package netconf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Delegate is the configuration of the plugin that does the work. Its Text is what that
// plugin reads, and what is kept as the attachment's state.
type Delegate struct {
	// Type is the plugin's name and IPAMType that of its address management, "" if it has none.
	Type, IPAMType string
	// CNIVersion is "" if the configuration has none.
	CNIVersion, Name string

	keys map[string]json.RawMessage
}

// Render makes the delegate's configuration for a node with env.
//
// The keys of delegate win over everything that is derived. dns, args and prevResult
// are forwarded, which flannel's plugin does not do: the delegate would get them if it
// were called in our place.
func (c Config) Render(env Env) (Delegate, error) {
	d, err := c.withoutEnv()
	if err != nil {
		return Delegate{}, err
	}
	d.setDefault("mtu", env.MTU)
	if c.Attach != AttachDirect {
		d.setDefault("ipMasq", !env.IPMasq)
		if d.Type == DefaultType {
			d.setDefault("isGateway", true)
		}
	}
	ipam, err := c.renderIPAM(d.IPAMType, env)
	if err != nil {
		return Delegate{}, err
	}
	d.set("ipam", ipam)
	return d, nil
}

// RenderStatus makes the delegate's configuration without a node's subnet, for STATUS and
// GC when there is no subnet.env.
func (c Config) RenderStatus() (Delegate, error) {
	d, err := c.withoutEnv()
	if err != nil {
		return Delegate{}, err
	}
	ipam := maps.Clone(c.IPAM)
	if ipam == nil {
		ipam = map[string]json.RawMessage{}
	}
	ipam["type"] = encode(d.IPAMType)
	d.set("ipam", ipam)
	return d, nil
}

// withoutEnv makes the part of the configuration that needs no subnet.env.
func (c Config) withoutEnv() (d Delegate, err error) {
	if d.Type, err = c.delegateType(); err != nil {
		return Delegate{}, err
	}
	if d.IPAMType, err = c.ipamType(); err != nil {
		return Delegate{}, err
	}
	d.keys = maps.Clone(c.Delegate)
	if d.keys == nil {
		d.keys = map[string]json.RawMessage{}
	}
	d.Name, d.CNIVersion = c.Name, c.CNIVersion
	d.set("name", c.Name)
	d.setDefault("type", d.Type)
	if c.CNIVersion != "" {
		d.set("cniVersion", c.CNIVersion)
	}
	if given(c.RuntimeConfig) {
		d.set("runtimeConfig", c.RuntimeConfig)
	}
	for key, value := range map[string]json.RawMessage{"dns": c.DNS, "args": c.Args} {
		if given(value) {
			d.setDefault(key, value)
		}
	}
	if c.Attach == AttachDirect {
		d = c.direct(d)
	}
	return d.WithPrevResult(c.PrevResult), nil
}

func (c Config) renderIPAM(kind string, env Env) (map[string]json.RawMessage, error) {
	type pool struct {
		Subnet netip.Prefix `json:"subnet"`
	}
	type route struct {
		Dst netip.Prefix `json:"dst"`
	}
	ranges := [][]pool{}
	for _, s := range env.Subnets {
		ranges = append(ranges, []pool{{s}})
	}
	routes, err := c.ipamRoutes()
	if err != nil {
		return nil, err
	}
	for _, n := range env.Networks {
		routes = append(routes, encode(route{n}))
	}
	ipam := maps.Clone(c.IPAM)
	if ipam == nil {
		ipam = map[string]json.RawMessage{}
	}
	ipam["type"], ipam["ranges"], ipam["routes"] = encode(kind), encode(ranges), encode(routes)
	return ipam, nil
}

// ParseDelegate reads back what Text, or flannel's plugin, has made.
func ParseDelegate(text []byte) (Delegate, error) {
	var d Delegate
	if err := json.Unmarshal(text, &d.keys); err != nil {
		return Delegate{}, fmt.Errorf("delegate's configuration: %w", err)
	}
	var known struct {
		Type       string `json:"type"`
		Name       string `json:"name"`
		CNIVersion string `json:"cniVersion"`
		IPAM       struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		return Delegate{}, fmt.Errorf("delegate's configuration: %w", err)
	}
	if known.Type == "" || known.Name == "" {
		return Delegate{}, fmt.Errorf("delegate's configuration: it has type %q and name %q, and needs both",
			known.Type, known.Name)
	}
	d.Type, d.Name, d.CNIVersion, d.IPAMType = known.Type, known.Name, known.CNIVersion, known.IPAM.Type
	return d, nil
}

// Text is the configuration as JSON.
func (d Delegate) Text() []byte { return encode(d.keys) }

// WithVersion returns d for another version of the specification.
func (d Delegate) WithVersion(v string) Delegate {
	d.CNIVersion = v
	return d.with("cniVersion", encode(v))
}

// WithPrevResult returns d with the result of the attachment's ADD, or without one if
// it is not given.
func (d Delegate) WithPrevResult(result json.RawMessage) Delegate {
	if !given(result) {
		d.keys = maps.Clone(d.keys)
		delete(d.keys, "prevResult")
		return d
	}
	return d.with("prevResult", result)
}

// PrevResult is nil if there is none.
func (d Delegate) PrevResult() json.RawMessage { return d.keys["prevResult"] }

// WithKey returns d with one more key.
func (d Delegate) WithKey(key string, value any) Delegate { return d.with(key, encode(value)) }

// As returns d for another plugin, which is called with d's configuration as the
// delegate itself calls its ipam plugin.
func (d Delegate) As(plugin string) Delegate {
	d.Type = plugin
	return d
}

// Bridge returns the name of the bridge that has the pods' gateway, "" if d makes none.
func (d Delegate) Bridge() string {
	var b struct {
		Bridge    *string `json:"bridge"`
		IsGateway bool    `json:"isGateway"`
		IsDefault bool    `json:"isDefaultGateway"`
	}
	switch err := json.Unmarshal(d.Text(), &b); {
	case err != nil, d.Type != DefaultType, !b.IsGateway && !b.IsDefault:
		return ""
	case b.Bridge == nil:
		return "cni0" // as the plugin has it
	}
	return *b.Bridge
}

// Elsewhere returns d's subnets that are not env's, of the families that env has.
func (d Delegate) Elsewhere(env Env) (old []netip.Prefix) {
	var ipam struct {
		Ranges [][]struct {
			Subnet netip.Prefix `json:"subnet"`
		} `json:"ranges"`
	}
	if json.Unmarshal(d.IPAM(), &ipam) != nil {
		return nil
	}
	for _, set := range ipam.Ranges {
		for _, r := range set {
			sameFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == r.Subnet.Addr().Is4() }
			if slices.ContainsFunc(env.Subnets, sameFamily) && !slices.Contains(env.Subnets, r.Subnet) {
				old = append(old, r.Subnet)
			}
		}
	}
	return old
}

// IPAM is the ipam section as it is, nil if there is none.
func (d Delegate) IPAM() json.RawMessage { return d.keys["ipam"] }

func (d Delegate) with(key string, value json.RawMessage) Delegate {
	d.keys = maps.Clone(d.keys)
	d.keys[key] = value
	return d
}

func (d Delegate) set(key string, value any) { d.keys[key] = encode(value) }

// setDefault sets what is not there. A null is there, as for flannel's plugin.
func (d Delegate) setDefault(key string, value any) {
	if _, ok := d.keys[key]; !ok {
		d.set(key, value)
	}
}

func given(raw json.RawMessage) bool {
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// encode is json.Marshal for values with which that never fails: maps, strings, numbers and parsed JSON.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
