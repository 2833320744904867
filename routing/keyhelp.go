package routing

import "slices"

// KeyHelp is what a reference says of one key of the network config.
type KeyHelp struct {
	// Name is the key; Backend's have "Backend." in front.
	Name string
	// Types are the types of Backend that read it; none if it is for all.
	Types []string
	// Default is its value where it is absent, and Meaning what it does.
	Default, Meaning string
}

// KeyHelps lists every key, in the order of a network config. The meaning of a key that keyMeanings lacks is
// empty.
func (ts Types) KeyHelps() []KeyHelp {
	meanings := keyMeanings()
	var out []KeyHelp
	for _, name := range networkKeys() {
		out = append(out, KeyHelp{Name: name, Default: meanings[name][0], Meaning: meanings[name][1]})
	}
	for _, k := range append([]key{{name: "Type"}}, ts.backendKeys()...) {
		h := KeyHelp{Name: backendPrefix + k.name, Default: meanings[k.name][0], Meaning: meanings[k.name][1]}
		for _, t := range ts {
			if slices.ContainsFunc(t.keys(), func(have key) bool { return have.name == k.name }) {
				h.Types = append(h.Types, t.Name)
			}
		}
		if len(h.Types) == len(ts) {
			h.Types = nil
		}
		out = append(out, h)
	}
	return out
}

// keyMeanings has the default and the meaning of each key. A key means the same in every type that has it.
func keyMeanings() map[string][2]string {
	return map[string][2]string{
		"Network":        {"none", "IPv4 address space of the overlay; needed unless `EnableIPv4` is false"},
		"SubnetLen":      {"24, longer in a small network", "prefix length of each node's subnet"},
		"SubnetMin":      {"the second subnet", "first subnet that is given out"},
		"SubnetMax":      {"the last subnet", "last subnet that is given out"},
		"EnableIPv4":     {"true", "the overlay carries IPv4"},
		"EnableIPv6":     {"false", "the overlay carries IPv6"},
		"EnableNFTables": {"false", "masquerade and forward rules are in nftables, not in iptables"},
		"IPv6Network":    {"none", "IPv6 address space of the overlay"},
		"IPv6SubnetLen":  {"64", "prefix length of each node's IPv6 subnet"},
		"IPv6SubnetMin":  {"the second subnet", "first IPv6 subnet that is given out"},
		"IPv6SubnetMax":  {"the last subnet", "last IPv6 subnet that is given out"},
		"Backend":        {"`udp`", "object with the keys below"},

		"Type":           {"`udp`", "how packets reach other nodes"},
		"NoMasquerade":   {"none", "list of destinations (CIDRs) that are never masqueraded"},
		"Probe":          {"true", "nodes ask each other whether they answer"},
		"Port":           {"8285; vxlan 8472", "UDP port of every node"},
		"MTU":            {"the underlay's", "taken for the underlay's MTU if it is smaller"},
		"SourceCheck":    {"`strict`", "what weft checks of a sender: `strict`, `outer` or `off`"},
		"AllowedSources": {"none", "list of further inner sources (CIDRs) that any peer may use"},
		"Path":           {"`auto`", "`raw`, `socket`, `portable`, or the first of these that this node can"},

		"DisableOffloads": {"none", "list of offloads to do without: `tun-tso`, `tun-uso`, `udp-gso`, `udp-gro`, " +
			"`tun-tcp`, `tun-udp`, `pcsum`, `pack`, `tunnel-gso`"},
		"RxUDPGROForwarding": {"`auto`", "the underlay device's feature rx-udp-gro-forwarding: `auto` turns it " +
			"on where it helps, `on`, `off` leaves it alone"},
		"Userspace": {"`auto`", "weft carries the packets: `auto`, if the kernel cannot; `always`; `never`"},
		"Encrypt": {"none", "`always`: WireGuard to every peer; `between-links`: to peers that are not on the " +
			"underlay's link"},

		"VNI":           {"1", "number of the VXLAN network"},
		"GBP":           {"false", "VXLAN group policy extension"},
		"Learning":      {"false", "the kernel's device learns MAC addresses"},
		"DirectRouting": {"false", "peers on the underlay's own link are reached by a plain route"},
		"MacPrefix":     {"none", "first two bytes of the device's MAC address, as `0E-2A`"},

		"ListenPort":   {"51820", "UDP port of every node"},
		"ListenPortV6": {"51821", "UDP port of the device for IPv6 with `Mode` `separate`"},
		"PSK":          {"none", "key that all nodes share, as `wg genpsk` makes it"},
		"Mode": {"`separate`", "`separate`: a device for each family; `ipv4`, `ipv6`: one device over that " +
			"family; `auto`: one device, over IPv4 unless only IPv6 is public"},
		"PersistentKeepaliveInterval": {"0", "seconds of silence until a packet is sent to each peer; 0 is never"},

		"PreStartupCommand":   {"none", "command before there is a lease; its output goes into the record"},
		"PostStartupCommand":  {"none", "command once the lease is known"},
		"ShutdownCommand":     {"none", "command at the stop"},
		"SubnetAddCommand":    {"none", "command for each peer, also after a restart"},
		"SubnetRemoveCommand": {"none", "command for each peer that goes"},

		"Interval": {"60", "seconds until the controller gets the same routes again, from 30 to 3600"},
	}
}
