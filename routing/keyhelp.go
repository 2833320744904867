package routing

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// KeyHelp is what a reference says of one key of the network config.
type KeyHelp struct {
	// Name is the key; Backend's have "Backend." in front.
	Name string
	// Types are the types of Backend that read it; none if it is for all.
	Types []string
	// Default is its value where it is absent, and Meaning what it does; "" if no type says that.
	Default, Meaning string
}

// networkKeys are those beside Backend; Backend itself stands for its own.
func networkKeys() []KeyHelp {
	return []KeyHelp{
		{Name: "Network", Default: "none", Meaning: "IPv4 address space of the overlay; needed unless " +
			"`EnableIPv4` is false"},
		{Name: "SubnetLen", Default: "24, longer in a small network",
			Meaning: "prefix length of each node's subnet"},
		{Name: "SubnetMin", Default: "the second subnet", Meaning: "first subnet that is given out"},
		{Name: "SubnetMax", Default: "the last subnet", Meaning: "last subnet that is given out"},
		{Name: "EnableIPv4", Default: "true", Meaning: "the overlay carries IPv4"},
		{Name: "EnableIPv6", Default: "false", Meaning: "the overlay carries IPv6"},
		{Name: "EnableNFTables", Default: "false",
			Meaning: "masquerade and forward rules are in nftables, not in iptables"},
		{Name: "IPv6Network", Default: "none", Meaning: "IPv6 address space of the overlay"},
		{Name: "IPv6SubnetLen", Default: "64", Meaning: "prefix length of each node's IPv6 subnet"},
		{Name: "IPv6SubnetMin", Default: "the second subnet", Meaning: "first IPv6 subnet that is given out"},
		{Name: "IPv6SubnetMax", Default: "the last subnet", Meaning: "last IPv6 subnet that is given out"},
		{Name: "Backend", Default: "`udp`", Meaning: "object with the keys below"},
	}
}

// sharedHelp has the meaning of keys that several types have. A key means the same in each.
func sharedHelp() map[string]string {
	return map[string]string{
		"NoMasquerade":   "list of destinations (CIDRs) that are never masqueraded",
		"Probe":          "nodes ask each other whether they answer",
		"Port":           "UDP port of every node",
		"MTU":            "taken for the underlay's MTU if it is smaller",
		"SourceCheck":    "what weft checks of a sender: `strict`, `outer` or `off`",
		"AllowedSources": "list of further inner sources (CIDRs) that any peer may use",
		"Path":           "`raw`, `socket`, `portable`, or the first of these that this node can",
		"DisableOffloads": "list of offloads to do without: `tun-tso`, `tun-uso`, `udp-gso`, `udp-gro`, " +
			"`tun-tcp`, `tun-udp`, `pcsum`, `pack`, `tunnel-gso`",
		"RxUDPGROForwarding": "the underlay device's feature rx-udp-gro-forwarding: `auto` turns it " +
			"on for a veth pair with GRO, `on`, `off` leaves it alone",
		"DirectRouting": "peers on the underlay's own link are reached by a plain route",
		"Userspace":     "weft carries the packets: `auto`, if the kernel cannot; `always`; `never`",
	}
}

// KeyHelps lists every key, in the order of a network config.
func (ts Types) KeyHelps() []KeyHelp {
	out := append(networkKeys(), KeyHelp{Name: backendPrefix + "Type", Default: "`udp`",
		Meaning: "how packets reach other nodes"})
	for _, k := range ts.backendKeys() {
		h := KeyHelp{Name: backendPrefix + k.name, Default: k.absent(), Meaning: sharedHelp()[k.name]}
		for _, t := range ts {
			i := slices.IndexFunc(t.keys(), func(have key) bool { return have.name == k.name })
			if i < 0 {
				continue
			}
			h.Types = append(h.Types, t.Name)
			h.Meaning = cmp.Or(h.Meaning, t.Help[k.name])
			if own := t.keys()[i].absent(); !strings.Contains(h.Default, own) {
				h.Default += "; " + t.Name + " " + own
			}
		}
		if len(h.Types) == len(ts) {
			h.Types = nil
		}
		out = append(out, h)
	}
	return out
}

// absent is the value of a key that is not there, in a reference.
func (k key) absent() string {
	k.reset()
	switch kind := k.value.Kind(); {
	case k.name == "MTU":
		return "the underlay's"
	case k.value.IsZero() && kind != reflect.Bool && kind != reflect.Int:
		return "none"
	case kind == reflect.String:
		return "`" + k.value.String() + "`"
	}
	return shown(k.value)
}
