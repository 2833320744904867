package options

import (
	"flag"
	"net/netip"
	"time"
)

// defaults returns flannel's defaults, and ours for our own flags.
func defaults() Config {
	return Config{
		Store: Store{
			Endpoints: []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"},
			Prefix:    "/coreos.com/network",
		},
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

// row is all that is declared of a flag: docs/reference/flags.md and weftd.env are made from it.
type row struct {
	name string
	// own says that flanneld does not know it, and so has no variable for it.
	own bool
	// effect is what a reload does with another value; zero for a mode, which is something to do rather than a
	// setting.
	effect Effect
	bind   binder
	usage  string
}

// section is a part of weftd.env, and its title there.
type section struct {
	title string
	rows  []row
}

// sections has every flag, bound to its field of c.
func sections(c *Config) []section {
	return []section{
		etcdFlags(c), embeddedFlags(c), kubeFlags(c), networkFlags(c), underlayFlags(c), nodeFlags(c),
		rulesFlags(c),
		healthFlags(c), logFlags(c), modeFlags(c),
	}
}

// rowOf returns the row of that name, the zero row if there is none.
func rowOf(name string) row {
	for _, s := range sections(new(Config)) {
		for _, r := range s.rows {
			if r.name == name {
				return r
			}
		}
	}
	return row{}
}

// define defines the flags of sections in fs. The values that their fields have now are the defaults.
func define(fs *flag.FlagSet, of ...section) {
	for _, s := range of {
		for _, r := range s.rows {
			r.bind(fs, r.name, r.usage)
		}
	}
}

// binder defines a flag of a name and a usage in fs, bound to a field.
type binder func(fs *flag.FlagSet, name, usage string)

func text(p *string) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.StringVar(p, name, *p, usage) }
}

func boolean(p *bool) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.BoolVar(p, name, *p, usage) }
}

func number(p *int) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.IntVar(p, name, *p, usage) }
}

func duration(p *time.Duration) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.DurationVar(p, name, *p, usage) }
}

func addrPort(p *netip.AddrPort) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.TextVar(p, name, *p, usage) }
}

func etcdFlags(c *Config) section {
	return section{"The store: etcd", []row{
		{name: "etcd-endpoints", effect: Live, bind: urls(&c.Store.Endpoints),
			usage: "comma-separated `URLs` of etcd"},
		{name: "etcd-prefix", effect: Restart, bind: text(&c.Store.Prefix),
			usage: "root of all `keys` in etcd"},
		{name: "etcd-cafile", effect: Live, bind: text(&c.Store.CAFile),
			usage: "PEM `file` with the authorities that etcd's certificate is checked against"},
		{name: "etcd-certfile", effect: Live, bind: text(&c.Store.CertFile),
			usage: "PEM `file` with our certificate for etcd"},
		{name: "etcd-keyfile", effect: Live, bind: text(&c.Store.KeyFile),
			usage: "PEM `file` with our private key for etcd"},
		{name: "etcd-username", effect: Live, bind: text(&c.Store.Username),
			usage: "`user` in etcd"},
		{name: "etcd-password-file", own: true, effect: Live, bind: text(&c.Store.PasswordFile),
			usage: "`file` whose first line is the password of --etcd-username"},
		{name: "etcd-password", effect: Live, bind: secret(&c.Store.Password),
			usage: "the user's `password`; anyone on this host can read it on the command line, so " +
				"prefer --etcd-password-file"},
	}}
}

func embeddedFlags(c *Config) section {
	return section{"The store: an etcd that weftd runs itself, for a lab or a first node", []row{
		{name: "embedded-etcd", own: true, effect: Restart, bind: boolean(&c.Embedded.On),
			usage: "run an etcd server, which ends when this daemon does"},
		{name: "embedded-etcd-dir", own: true, effect: Restart, bind: text(&c.Embedded.Dir),
			usage: "`directory` of the embedded etcd's data"},
		{name: "embedded-etcd-listen", own: true, effect: Restart, bind: addrPort(&c.Embedded.Listen),
			usage: "`address:port` where the embedded etcd serves clients; empty is the Unix socket " +
				"client/etcd.sock in --embedded-etcd-dir, which only root can use. On loopback any local " +
				"user can write the store; other than loopback it needs TLS or --embedded-etcd-insecure"},
		{name: "embedded-etcd-insecure", own: true, effect: Restart, bind: boolean(&c.Embedded.Insecure),
			usage: "let anyone who reaches the embedded etcd read and write it"},
	}}
}

func kubeFlags(c *Config) section {
	return section{"The store: Kubernetes. weftd runs as a DaemonSet there, which sets these by arguments",
		[]row{
			{name: "kube-subnet-mgr", effect: Restart, bind: boolean(&c.Kube.On),
				usage: "take subnets from the Kubernetes API (the podCIDRs of nodes) instead of etcd; the " +
					"own node is that of NODE_NAME, else of the pod that POD_NAMESPACE and POD_NAME name"},
			{name: "kube-api-url", effect: Live, bind: oneURL(&c.Kube.APIURL),
				usage: "`URL` of the Kubernetes API; with neither this nor --kubeconfig-file it is found as " +
					"pods find it"},
			{name: "kubeconfig-file", effect: Live, bind: text(&c.Kube.Kubeconfig),
				usage: "kubeconfig `file` that says how the Kubernetes API is reached, and who we are there"},
			{name: "kube-annotation-prefix", effect: Restart, bind: text(&c.Kube.AnnotationPrefix),
				usage: "`prefix` of the annotations on nodes: a domain, perhaps with a slash and the " +
					"beginning of the name"},
			{name: "set-node-network-unavailable", effect: Restart, bind: boolean(&c.Kube.SetNodeNetworkUnavailable),
				usage: "set the node's condition NetworkUnavailable: false once packets can flow, true when " +
					"they cannot for long"},
		}}
}
