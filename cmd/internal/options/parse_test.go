package options

import (
	"errors"
	"flag"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// flannelFlags are the flags of flanneld v0.28.9.
const flannelFlags = `etcd-endpoints etcd-prefix etcd-keyfile etcd-certfile etcd-cafile etcd-username etcd-password
iface iface-regex iface-can-reach subnet-file public-ip public-ipv6 subnet-lease-renew-margin ip-masq
ip-masq-fully-random-disable kube-subnet-mgr kube-api-url kube-annotation-prefix kubeconfig-file version healthz-ip
healthz-port iptables-resync iptables-forward-rules ip-blackhole-route net-config-path set-node-network-unavailable
v vmodule log_backtrace_at`

func TestEveryFlannelFlagIsTakenAlsoFromItsVariable(t *testing.T) {
	var c Config
	fs := newFlagSet(&c)
	for _, name := range strings.Fields(flannelFlags) {
		f := fs.Lookup(name)
		if f == nil {
			t.Errorf("flag -%s is missing", name)
			continue
		}
		if vars := variables(name); len(vars) != 2 || !strings.HasPrefix(vars[1], "FLANNELD_") {
			t.Errorf("flag -%s has the variables %q", name, vars)
		}
	}
	n := 0
	o := 0
	fs.VisitAll(func(f *flag.Flag) {
		if n++; rowOf(f.Name).own {
			o++
		}
	})
	if want := len(strings.Fields(flannelFlags)) + o; n != want {
		t.Errorf("%d flags, want flannel's and ours: %d", n, want)
	}
}

func TestDefaultsAreFlannels(t *testing.T) {
	c, err := Parse(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]bool{
		"endpoints": slices.Equal(c.Store.Endpoints, []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"}),
		"prefix":    c.Store.Prefix == "/coreos.com/network",
		"subnet":    c.SubnetFile == "/run/flannel/subnet.env",
		"margin":    c.RenewMargin == time.Hour,
		"forward":   c.Rules.ForwardRules && !c.Rules.IPMasq,
		"resync":    c.Rules.Resync == 5*time.Second,
		"health":    c.HealthzPort == 0 && c.HealthzIP == netip.MustParseAddr("0.0.0.0"),
		"config":    c.NetConfigPath == "/etc/kube-flannel/net-conf.json" && !c.NetConfigGiven,
		"control":   c.ControlSocket == "/run/weft/weftd.sock" && c.CacheDir == "/var/lib/weft",
	}
	for name, ok := range checks {
		if !ok {
			t.Errorf("%s: %+v", name, c)
		}
	}
	for _, s := range c.Settings {
		if s.Source != "default" {
			t.Errorf("%s comes from %q", s.Name, s.Source)
		}
	}
}

func TestPrecedence(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		env        []string
		value, src string
	}{
		{"default", "", nil, "/coreos.com/network", "default"},
		{"flannel's variable", "", []string{"FLANNELD_ETCD_PREFIX=/f"}, "/f", "env FLANNELD_ETCD_PREFIX"},
		{"our variable first", "", []string{"FLANNELD_ETCD_PREFIX=/f", "WEFTD_ETCD_PREFIX=/w"}, "/w",
			"env WEFTD_ETCD_PREFIX"},
		{"flag first", "-etcd-prefix /x", []string{"WEFTD_ETCD_PREFIX=/w"}, "/x", "flag"},
		{"empty is unset", "", []string{"WEFTD_ETCD_PREFIX=", "FLANNELD_ETCD_PREFIX=/f"}, "/f",
			"env FLANNELD_ETCD_PREFIX"},
		{"both empty", "", []string{"WEFTD_ETCD_PREFIX=", "FLANNELD_ETCD_PREFIX="}, "/coreos.com/network",
			"default"},
		{"the other form of a flag", "--etcd-prefix=/y/", nil, "/y/", "flag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Parse(strings.Fields(tt.args), tt.env)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(c.Settings, func(s Setting) bool { return s.Name == "etcd-prefix" })
			if got := c.Settings[i]; got.Value != tt.value || got.Source != tt.src {
				t.Errorf("got %q from %q, want %q from %q", got.Value, got.Source, tt.value, tt.src)
			}
		})
	}
}

func TestValues(t *testing.T) {
	c, err := Parse([]string{"-iface", "eth0", "--iface=10.0.0.1", "-public-ipv6=2001:db8::1", "-v=2",
		"--ip-masq", "-subnet-lease-renew-margin", "1439",
		"-iptables-forward-rules=false", "--embedded-etcd", "--etcd-endpoints", "a:1, b:2"},
		[]string{"FLANNELD_PUBLIC_IP=192.0.2.7", "FLANNELD_VERSION=true", "WEFTD_IP_MASK=1"})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Underlay.Ifaces, []string{"eth0", "10.0.0.1"}) ||
		c.Underlay.PublicIP != netip.MustParseAddr("192.0.2.7") ||
		c.Log.Verbosity != 2 || !c.Rules.IPMasq || c.Rules.ForwardRules || c.RenewMargin != 1439*time.Minute ||
		!c.Embedded.On ||
		!slices.Equal(c.Store.Endpoints, []string{"a:1", "b:2"}) {
		t.Errorf("%+v", c)
	}
	if c.Version {
		t.Error("a variable switched a mode on")
	}
	if !slices.Equal(c.Unknown, []string{"WEFTD_IP_MASK"}) {
		t.Errorf("unknown variables %q", c.Unknown)
	}
	if c, err := Parse([]string{"--iface", "x"}, []string{"FLANNELD_IFACE=y"}); err != nil ||
		!slices.Equal(c.Underlay.Ifaces, []string{"x"}) {
		t.Errorf("flag and variable were mixed: %q %v", c.Underlay.Ifaces, err)
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		env        []string
		want       []string
	}{
		{"unknown flag", "--nonsense", nil, []string{"-nonsense"}},
		{"no flag", "--ip-masq true -v 1", nil, []string{`"true"`, "--flag=false"}},
		{"bad variable", "", []string{"FLANNELD_IP_MASQ=perhaps"}, []string{"FLANNELD_IP_MASQ", `"perhaps"`}},
		{"bad variable of ours", "", []string{"WEFTD_PUBLIC_IP=::1"}, []string{"WEFTD_PUBLIC_IP", "IPv4"}},
		{"bad flag", "--public-ip nowhere", nil, []string{"-public-ip", "nowhere"}},
		{"two sources", "--kube-subnet-mgr --embedded-etcd", nil, []string{"--kube-subnet-mgr", "--embedded-etcd"}},
		{"credentials in the open", "--kube-subnet-mgr --kube-api-url=https://u:hunter2@192.0.2.1", nil,
			[]string{"--kube-api-url", "--kubeconfig-file"}},
		{"no network", "--kube-subnet-mgr --net-config-path=", nil,
			[]string{"--net-config-path", "--kube-subnet-mgr"}},
		{"all at once", "-subnet-lease-renew-margin 0 -healthz-port 70000 --log-format xml --iface-regex [ " +
			"--subnet-file= --cache-dir=",
			[]string{"WEFTD_IPTABLES_RESYNC=soon"},
			[]string{"renew-margin", "70000", "xml", "iface-regex", "subnet-file", "WEFTD_IPTABLES_RESYNC",
				"cache-dir"}},
		{"negative time", "-iptables-resync=-1", nil, []string{"-iptables-resync"}},
		{"two passwords", "--etcd-username u --etcd-password p --etcd-password-file f", nil,
			[]string{"both given"}},
		{"no endpoint", "--etcd-endpoints ,", nil, []string{"--etcd-endpoints"}},
		{"embedded in the open", "--embedded-etcd --embedded-etcd-listen 192.0.2.1:2379", nil,
			[]string{"192.0.2.1:2379", "insecure"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(strings.Fields(tt.args), tt.env)
			if !errors.Is(err, ErrUsage) {
				t.Fatalf("error %v is not about usage", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in:\n%v", w, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is in:\n%v", err)
			}
		})
	}
}

func TestModes(t *testing.T) {
	if _, err := Parse([]string{"--help"}, nil); err != ErrHelp {
		t.Errorf("--help: %v", err)
	}
	if c, err := Parse([]string{"-version"}, []string{"FLANNELD_V=many"}); err != nil || !c.Version {
		t.Errorf("-version: %v", err)
	}
	if c, err := Parse([]string{"--embedded-etcd", "--embedded-etcd-listen=0.0.0.0:2379",
		"--embedded-etcd-insecure", "--check"}, nil); err != nil || !c.Check {
		t.Errorf("--check: %v", err)
	}
}

func TestUsageNamesEveryFlag(t *testing.T) {
	var out strings.Builder
	Usage(&out)
	var c Config
	newFlagSet(&c).VisitAll(func(f *flag.Flag) {
		if !strings.Contains(out.String(), "  --"+f.Name) {
			t.Errorf("--%s is not in the usage", f.Name)
		}
	})
}
