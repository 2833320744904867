package options

import (
	"time"
)

func networkFlags(c *Config) section {
	return section{"The network configuration. It is in the store; these are about how it gets there, and " +
		"what is believed of it", []row{
		{name: "net-config-path", effect: Restart, bind: text(&c.NetConfigPath),
			usage: "network configuration `file`, with Kubernetes; with etcd, if given explicitly, it " +
				"is stored if etcd has none"},
		{name: "allow-extension", own: true, effect: Restart, bind: boolean(&c.AllowExtension),
			usage: "run the commands of a network configuration of type extension, as root, also if it " +
				"comes from a store that anyone may write; without this flag only from etcd by TLS " +
				"with a client certificate or a login, from the embedded etcd's socket, or from a " +
				"file that only root can write"},
		{name: "renumber", own: true, effect: Restart, bind: boolean(&c.Renumber),
			usage: "take up a network configuration whose Network does not contain this node's subnet: " +
				"the node gets another one, and its pods are cut off until they are made anew"},
	}}
}

func underlayFlags(c *Config) section {
	return section{"The underlay: which interface, and which addresses the other nodes are told", []row{
		{name: "iface", effect: Restart, bind: repeated(&c.Underlay.Ifaces),
			usage: "underlay interface by `name or address`; may be repeated, the first that exists is used"},
		{name: "iface-regex", effect: Restart, bind: repeated(&c.Underlay.Regexes),
			usage: "`pattern` on addresses, then names, of interfaces; tried after --iface; may be repeated"},
		{name: "iface-can-reach", effect: Restart, bind: addr(&c.Underlay.CanReach, 0),
			usage: "take the interface that a route lookup to this `address` gives"},
		{name: "public-ip", effect: Restart, bind: addr(&c.Underlay.PublicIP, 4),
			usage: "IPv4 `address` that peers are told"},
		{name: "public-ipv6", effect: Restart, bind: addr(&c.Underlay.PublicIPv6, 6),
			usage: "IPv6 `address` that peers are told"},
		{name: "rx-udp-gro-forwarding", own: true, effect: Restart, bind: text(&c.Underlay.Forwarding),
			usage: "what to do with the underlay device's `feature` of that name, which is the host's: " +
				"auto, on or off; empty is what the network configuration says, by default auto"},
		{name: "rootless", own: true, effect: Restart, bind: boolean(&c.Rootless.On),
			usage: "work without root: with the TUN in a user and network namespace of this user's, and " +
				"sockets, state and files in this user's directories; an ordinary user's weftd " +
				"without CAP_NET_ADMIN does so by itself; --rootless=false forbids it"},
		{name: "tun-netns", own: true, effect: Restart, bind: text(&c.Rootless.TUNNetns),
			usage: "network `namespace` of the TUN and the pods, a path or the id of a process in it " +
				"(rootless Docker, podman, RootlessKit, unshare -Urn); empty is the namespace that weftd " +
				"is started in, with --rootless a new one. The underlay stays where weftd is started"},
	}}
}

func nodeFlags(c *Config) section {
	return section{"The lease, the files, and who this node is", []row{
		{name: "subnet-file", effect: Restart, bind: text(&c.SubnetFile),
			usage: "`file` that subnet, MTU and masquerading are written to"},
		{name: "subnet-lease-renew-margin", effect: Restart, bind: units(&c.RenewMargin, time.Minute),
			usage: "renew the lease this many `minutes` before it ends (1 to 1439)"},
		{name: "node-id", own: true, effect: Restart, bind: text(&c.NodeID),
			usage: "`identity` of this node; empty keeps the stored one, else one derived from the " +
				"machine id"},
		{name: "node-name", own: true, effect: Restart, bind: text(&c.NodeName),
			usage: "`name` by which people and commands call this node, on every node; empty is the " +
				"host's name; in Kubernetes it is the Node's name, whatever this says"},
		{name: "cache-dir", own: true, effect: Restart, bind: text(&c.CacheDir),
			usage: "`directory` of the node's identity and the last known peers"},
		{name: "holder-timeout", own: true, effect: Restart, bind: duration(&c.HolderTimeout),
			usage: "how long (`duration`, such as 15m) the ports of the data plane and the interfaces of " +
				"directly attached pods are held while no weftd runs, for the next one to take up; 0 is " +
				"not at all; under systemd its descriptor store holds them instead"},
		{name: "replace", own: true, effect: Restart, bind: boolean(&c.Replace),
			usage: "take the place of a weftd of this node that runs: it stops, and keeps what it has " +
				"open for this one; without the flag this one ends"},
		{name: "route-hook-url", own: true, effect: Restart, bind: text(&c.Hook.URL),
			usage: "`URL` of the controller that programs the routes of a network of type route-hook: " +
				"https, or http on a loopback address"},
		{name: "route-hook-token-file", own: true, effect: Restart, bind: text(&c.Hook.TokenFile),
			usage: "`file` with the token that this host shows the controller, in its first line; it is " +
				"read for each request"},
		{name: "route-hook-cafile", own: true, effect: Restart, bind: text(&c.Hook.CAFile),
			usage: "PEM `file` with the authorities that the controller's certificate is checked " +
				"against; empty is the system's"},
		{name: "route-hook-certfile", own: true, effect: Restart, bind: text(&c.Hook.CertFile),
			usage: "PEM `file` with the certificate that this host shows the controller"},
		{name: "route-hook-keyfile", own: true, effect: Restart, bind: text(&c.Hook.KeyFile),
			usage: "PEM `file` with the key of --route-hook-certfile"},
		{name: "confine", own: true, effect: Restart, bind: text(&c.Confine),
			usage: "which `rights` weftd, and what it starts, give up: off; capabilities, all but " +
				"CAP_NET_ADMIN, CAP_NET_RAW and CAP_DAC_READ_SEARCH; files, also writing to files " +
				"other than its own"},
		{name: "control-socket", own: true, effect: Restart, bind: text(&c.ControlSocket),
			usage: "Unix `socket` that the weft command asks; empty serves none"},
	}}
}

func rulesFlags(c *Config) section {
	return section{"Rules of the host", []row{
		{name: "ip-masq", effect: Restart, bind: boolean(&c.Rules.IPMasq),
			usage: "masquerade traffic that leaves the overlay, and say so in the subnet file"},
		{name: "ip-masq-fully-random-disable", effect: Restart, bind: boolean(&c.Rules.RandomFullyDisable),
			usage: "masquerade without random source ports"},
		{name: "iptables-forward-rules", effect: Restart, bind: boolean(&c.Rules.ForwardRules),
			usage: "accept forwarded overlay traffic"},
		{name: "iptables-resync", effect: Restart, bind: units(&c.Rules.Resync, time.Second),
			usage: "`seconds` between looks at the traffic rules; those in nftables are also watched, " +
				"and no look runs iptables"},
		{name: "ip-blackhole-route", effect: Restart, bind: boolean(&c.Rules.Blackhole),
			usage: "keep a blackhole route for the local subnet, so that packets for absent pods do not " +
				"leave by the default route"},
	}}
}

func healthFlags(c *Config) section {
	return section{"Health and metrics", []row{
		{name: "healthz-port", effect: Restart, bind: number(&c.HealthzPort),
			usage: "`port` of the health and metrics server; 0 is off"},
		{name: "healthz-ip", effect: Restart, bind: addr(&c.HealthzIP, 0),
			usage: "`address` of the health and metrics server; /metrics is for this host alone unless " +
				"an address is given"},
		{name: "metrics-per-peer", own: true, effect: Restart, bind: boolean(&c.MetricsPerPeer),
			usage: "let /metrics have series for each peer; without, a page has the same length however " +
				"many peers there are"},
		{name: "metrics-per-pod", own: true, effect: Restart, bind: boolean(&c.MetricsPerPod),
			usage: "let /metrics have series for each pod that is attached directly, beside the sums of " +
				"all; each pod that ever ran leaves some in the monitoring"},
		{name: "probe", own: true, effect: Restart, bind: boolean(&c.Probe),
			usage: "ask the peers through the overlay whether they answer, and answer theirs; the " +
				"network configuration's \"Probe\": false turns it off too"},
		{name: "environment-file", own: true, effect: Restart, bind: text(&c.EnvironmentFile),
			usage: "`file` with variables, as lines NAME=value, that count more than those of the " +
				"environment; weft reload and SIGHUP read it again"},
	}}
}

func logFlags(c *Config) section {
	return section{"The log", []row{
		{name: "log-format", own: true, effect: Live, bind: text(&c.Log.Format),
			usage: "`format` of log lines: text or json"},
		{name: "v", effect: Live, bind: number(&c.Log.Verbosity),
			usage: "log `level`: 1 or more logs debug messages"},
		{name: "vmodule", effect: Idle, bind: text(&c.Log.VModule),
			usage: "accepted for flannel's sake; has no effect"},
		{name: "log_backtrace_at", effect: Idle, bind: text(&c.Log.BacktraceAt),
			usage: "accepted for flannel's sake; has no effect"},
	}}
}

func modeFlags(c *Config) section {
	return section{"", []row{
		{name: "version", bind: boolean(&c.Version),
			usage: "print the version and exit"},
		{name: "check", own: true, bind: boolean(&c.Check),
			usage: "print the configuration in force with its sources, and what would keep weftd from " +
				"starting or packets from passing here; ask the store, change nothing; the exit " +
				"status is 1 for faults"},
		{name: "offline", own: true, bind: boolean(&c.Offline),
			usage: "with --check, ask neither the store nor the API server, and look only at what a " +
				"start needs"},
	}}
}
