package options

import (
	"flag"
	"net/netip"
	"time"
)

// defaults returns flannel's defaults, and ours for our own flags.
func defaults() Config {
	return Config{
		Store:         defaultStore(),
		Embedded:      Embedded{Dir: "/var/lib/weft/etcd"},
		Kube:          Kube{AnnotationPrefix: "flannel.alpha.coreos.com", SetNodeNetworkUnavailable: true},
		Rules:         Rules{ForwardRules: true, Resync: 5 * time.Second},
		Log:           Log{Format: "text"},
		SubnetFile:    "/run/flannel/subnet.env",
		RenewMargin:   time.Hour,
		HealthzIP:     netip.IPv4Unspecified(),
		NetConfigPath: "/etc/kube-flannel/net-conf.json",
		ControlSocket: "/run/weft/weftd.sock",
		CacheDir:      "/var/lib/weft",
		HolderTimeout: 15 * time.Minute,
		Confine:       ConfineCapabilities,
		Probe:         true,

		MetricsPerPeer: true,
	}
}

func defaultStore() Store {
	return Store{
		Endpoints: []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"},
		Prefix:    "/coreos.com/network",
	}
}

// define binds every flag to its field of c, whose values are the defaults.
func define(fs *flag.FlagSet, c *Config) {
	defineFlannel(fs, c)
	defineKlog(fs, c)
	defineOwn(fs, c)
}

// define binds the flags that say how the store is reached.
func (s *Store) define(fs *flag.FlagSet) {
	fs.Var(urlsValue{listValue{&s.Endpoints}}, "etcd-endpoints", "comma-separated `URLs` of etcd")
	fs.StringVar(&s.Prefix, "etcd-prefix", s.Prefix, "root of all `keys` in etcd")
	fs.StringVar(&s.KeyFile, "etcd-keyfile", s.KeyFile, "PEM `file` with our private key for etcd")
	fs.StringVar(&s.CertFile, "etcd-certfile", s.CertFile, "PEM `file` with our certificate for etcd")
	fs.StringVar(&s.CAFile, "etcd-cafile", s.CAFile, "PEM `file` with the authorities that etcd's certificate is checked against")
	fs.StringVar(&s.Username, "etcd-username", s.Username, "`user` in etcd")
	fs.Var(secretValue{&s.Password}, "etcd-password", "the user's `password`; anyone on this host can read it on the command line, so prefer --etcd-password-file")
}

// defineOwn binds the flags about the store that flanneld does not know.
func (s *Store) defineOwn(fs *flag.FlagSet) {
	fs.StringVar(&s.PasswordFile, "etcd-password-file", s.PasswordFile, "`file` whose first line is the password of --etcd-username")
}

// defineFlannel binds flanneld's flags, in the order of its documentation.
func defineFlannel(fs *flag.FlagSet, c *Config) {
	c.Store.define(fs)
	u := &c.Underlay
	fs.Var(repeatedValue{&u.Ifaces}, "iface", "underlay interface by `name or address`; may be repeated, the first that exists is used")
	fs.Var(repeatedValue{&u.Regexes}, "iface-regex", "`pattern` on addresses, then names, of interfaces; tried after --iface; may be repeated")
	fs.Var(addrValue{&u.CanReach, 0}, "iface-can-reach", "take the interface that a route lookup to this `address` gives")
	fs.Var(addrValue{&u.PublicIP, 4}, "public-ip", "IPv4 `address` that peers are told")
	fs.Var(addrValue{&u.PublicIPv6, 6}, "public-ipv6", "IPv6 `address` that peers are told")
	fs.StringVar(&c.SubnetFile, "subnet-file", c.SubnetFile, "`file` that subnet, MTU and masquerading are written to")
	fs.Var(unitValue{&c.RenewMargin, time.Minute}, "subnet-lease-renew-margin", "renew the lease this many `minutes` before it ends (1 to 1439)")
	r := &c.Rules
	fs.BoolVar(&r.IPMasq, "ip-masq", r.IPMasq, "masquerade traffic that leaves the overlay, and say so in the subnet file")
	fs.BoolVar(&r.RandomFullyDisable, "ip-masq-fully-random-disable", r.RandomFullyDisable, "masquerade without random source ports")
	fs.Var(unitValue{&r.Resync, time.Second}, "iptables-resync", "`seconds` between looks at the traffic rules; those in nftables are also watched, and no look runs iptables")
	fs.BoolVar(&r.ForwardRules, "iptables-forward-rules", r.ForwardRules, "accept forwarded overlay traffic")
	fs.BoolVar(&r.Blackhole, "ip-blackhole-route", r.Blackhole, "keep a blackhole route for the local subnet, so that packets for absent pods do not leave by the default route")
	fs.Var(addrValue{&c.HealthzIP, 0}, "healthz-ip", "`address` of the health and metrics server; /metrics is for this host alone unless an address is given")
	fs.IntVar(&c.HealthzPort, "healthz-port", c.HealthzPort, "`port` of the health and metrics server; 0 is off")
	k := &c.Kube
	fs.BoolVar(&k.On, "kube-subnet-mgr", k.On, "take subnets from the Kubernetes API (the podCIDRs of nodes) instead of etcd; the own node is that of NODE_NAME, else of the pod that POD_NAMESPACE and POD_NAME name")
	fs.Var(urlValue{&k.APIURL}, "kube-api-url", "`URL` of the Kubernetes API; with neither this nor --kubeconfig-file it is found as pods find it")
	fs.StringVar(&k.AnnotationPrefix, "kube-annotation-prefix", k.AnnotationPrefix, "`prefix` of the annotations on nodes: a domain, perhaps with a slash and the beginning of the name")
	fs.StringVar(&k.Kubeconfig, "kubeconfig-file", k.Kubeconfig, "kubeconfig `file` that says how the Kubernetes API is reached, and who we are there")
	fs.BoolVar(&k.SetNodeNetworkUnavailable, "set-node-network-unavailable", k.SetNodeNetworkUnavailable, "set the node's condition NetworkUnavailable: false once packets can flow, true when they cannot for long")
	fs.StringVar(&c.NetConfigPath, "net-config-path", c.NetConfigPath, "network configuration `file`, with Kubernetes; with etcd, if given explicitly, it is stored if etcd has none")
	fs.BoolVar(&c.Version, "version", false, "print the version and exit")
}

// defineKlog binds the three logging flags that flanneld has.
func defineKlog(fs *flag.FlagSet, c *Config) {
	fs.IntVar(&c.Log.Verbosity, "v", c.Log.Verbosity, "log `level`: 1 or more logs debug messages")
	fs.StringVar(&c.Log.VModule, "vmodule", c.Log.VModule, "accepted for flannel's sake; has no effect")
	fs.StringVar(&c.Log.BacktraceAt, "log_backtrace_at", c.Log.BacktraceAt, "accepted for flannel's sake; has no effect")
}

// defineOwn binds the flags that flanneld does not know.
func defineOwn(fs *flag.FlagSet, c *Config) {
	e := &c.Embedded
	fs.BoolVar(&e.On, "embedded-etcd", e.On, "run an etcd server, which ends when this daemon does")
	fs.StringVar(&e.Dir, "embedded-etcd-dir", e.Dir, "`directory` of the embedded etcd's data")
	fs.Var(addrPortValue{&e.Listen}, "embedded-etcd-listen", "`address:port` where the embedded etcd serves clients; empty is the Unix socket client/etcd.sock in --embedded-etcd-dir, which only root can use. "+
		"On loopback any local user can write the store; other than loopback it needs TLS or --embedded-etcd-insecure")
	fs.BoolVar(&e.Insecure, "embedded-etcd-insecure", e.Insecure, "let anyone who reaches the embedded etcd read and write it")
	fs.BoolVar(&c.AllowExtension, "allow-extension", c.AllowExtension, "run the commands of a network configuration of type extension, as root, also if it comes from a store that anyone may write; "+
		"without this flag only from etcd by TLS with a client certificate or a login, from the embedded etcd's socket, or from a file that only root can write")
	c.Store.defineOwn(fs)
	h := &c.Hook
	fs.StringVar(&h.URL, "route-hook-url", h.URL, "`URL` of the controller that programs the routes of a network of type route-hook: https, or http on a loopback address")
	fs.StringVar(&h.TokenFile, "route-hook-token-file", h.TokenFile, "`file` with the token that this host shows the controller, in its first line; it is read for each request")
	fs.StringVar(&h.CAFile, "route-hook-cafile", h.CAFile, "PEM `file` with the authorities that the controller's certificate is checked against; empty is the system's")
	fs.StringVar(&h.CertFile, "route-hook-certfile", h.CertFile, "PEM `file` with the certificate that this host shows the controller")
	fs.StringVar(&h.KeyFile, "route-hook-keyfile", h.KeyFile, "PEM `file` with the key of --route-hook-certfile")
	fs.StringVar(&c.EnvironmentFile, "environment-file", c.EnvironmentFile, "`file` with variables, as lines NAME=value, that count more than those of the environment; weft reload and SIGHUP read it again")
	fs.StringVar(&c.ControlSocket, "control-socket", c.ControlSocket, "Unix `socket` that the weft command asks; empty serves none")
	fs.BoolVar(&c.Renumber, "renumber", false, "take up a network configuration whose Network does not contain this node's subnet: the node gets another one, and its pods are cut off until they are made anew")
	fs.BoolVar(&c.Probe, "probe", c.Probe, "ask the peers through the overlay whether they answer, and answer theirs; the network configuration's \"Probe\": false turns it off too")
	fs.StringVar(&c.CacheDir, "cache-dir", c.CacheDir, "`directory` of the node's identity and the last known peers")
	fs.DurationVar(&c.HolderTimeout, "holder-timeout", c.HolderTimeout, "how long (`duration`, such as 15m) the ports of the data plane and the interfaces of directly attached pods are held while no weftd runs, for the next one to take up, and what encrypts goes on; 0 is not at all; under systemd its descriptor store holds them instead")
	fs.StringVar(&c.Confine, "confine", c.Confine, "which `rights` weftd, and what it starts, give up: off; capabilities, all but CAP_NET_ADMIN, CAP_NET_RAW and CAP_DAC_READ_SEARCH; files, also writing to files other than its own")
	fs.BoolVar(&c.Replace, "replace", c.Replace, "take the place of a weftd of this node that runs: it stops, and keeps what it has open for this one; without it this one ends")
	fs.StringVar(&c.NodeID, "node-id", c.NodeID, "`identity` of this node; empty keeps the stored one, else one derived from the machine id")
	fs.BoolVar(&c.MetricsPerPeer, "metrics-per-peer", c.MetricsPerPeer, "let /metrics have series for each peer; without, a page has the same length however many peers there are")
	fs.BoolVar(&c.MetricsPerPod, "metrics-per-pod", c.MetricsPerPod, "let /metrics have series for each pod that is attached directly, beside the sums of all; each pod that ever ran leaves some in the monitoring")
	fs.StringVar(&c.NodeName, "node-name", c.NodeName, "`name` by which people and commands call this node, on every node; empty is the host's name; in Kubernetes it is the Node's name, whatever this says")
	fs.StringVar(&c.Underlay.Forwarding, "rx-udp-gro-forwarding", c.Underlay.Forwarding, "what to do with the underlay device's `feature` of that name, which is the host's: auto, on or off; empty is what the network configuration says, by default auto")
	fs.BoolVar(&c.Rootless.On, "rootless", c.Rootless.On, "work without root: with the TUN in a user and network namespace of this user's, and sockets, state and files in this user's directories; "+
		"an ordinary user's weftd without CAP_NET_ADMIN does so by itself; --rootless=false forbids it")
	fs.StringVar(&c.Rootless.TUNNetns, "tun-netns", c.Rootless.TUNNetns, "network `namespace` of the TUN and the pods, a path or the id of a process in it (rootless Docker, podman, RootlessKit, unshare -Urn); "+
		"empty is the namespace that weftd is started in, with --rootless a new one. The underlay stays where weftd is started")
	fs.StringVar(&c.Log.Format, "log-format", c.Log.Format, "`format` of log lines: text or json")
	fs.BoolVar(&c.Check, "check", false, "check everything, the store and what it has included, print the configuration in force with its sources, change nothing")
	fs.BoolVar(&c.Offline, "offline", false, "with --check, do not ask the store or the API server")
}
