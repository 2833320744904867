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
		etcdFlags(c), embeddedFlags(c), kubeFlags(c), networkFlags(c), underlayFlags(c), nodeFlags(c), rulesFlags(c),
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

func value(v flag.Value) binder {
	return func(fs *flag.FlagSet, name, usage string) { fs.Var(v, name, usage) }
}
