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

func sections() []section {
	return []section{
		etcdFlags(), embeddedFlags(), kubeFlags(), networkFlags(), underlayFlags(), nodeFlags(), rulesFlags(),
		healthFlags(), logFlags(), modeFlags(),
	}
}

// rowOf returns the row of that name, the zero row if there is none.
func rowOf(name string) row {
	for _, s := range sections() {
		for _, r := range s.rows {
			if r.name == name {
				return r
			}
		}
	}
	return row{}
}

// define binds every flag to its field of c, whose values are the defaults.
func define(fs *flag.FlagSet, c *Config, of ...section) {
	for _, s := range of {
		for _, r := range s.rows {
			r.bind(fs, c, r.name, r.usage)
		}
	}
}

// binder defines a flag of a name and a usage in fs, and binds it to its field of c.
type binder func(fs *flag.FlagSet, c *Config, name, usage string)

func text(field func(*Config) *string) binder {
	return func(fs *flag.FlagSet, c *Config, name, usage string) {
		fs.StringVar(field(c), name, *field(c), usage)
	}
}

func boolean(field func(*Config) *bool) binder {
	return func(fs *flag.FlagSet, c *Config, name, usage string) { fs.BoolVar(field(c), name, *field(c), usage) }
}

func number(field func(*Config) *int) binder {
	return func(fs *flag.FlagSet, c *Config, name, usage string) { fs.IntVar(field(c), name, *field(c), usage) }
}

func duration(field func(*Config) *time.Duration) binder {
	return func(fs *flag.FlagSet, c *Config, name, usage string) {
		fs.DurationVar(field(c), name, *field(c), usage)
	}
}

func value(of func(*Config) flag.Value) binder {
	return func(fs *flag.FlagSet, c *Config, name, usage string) { fs.Var(of(c), name, usage) }
}
