package doctor

import (
	"os/exec"
	"strings"
	"testing"

	"weft/cmd/internal/options"
	"weft/lease"
	"weft/lease/keeper"
	"weft/routing"
)

const secretKey = "aGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVuaGlkZGVuMDA="

// A remedy changes the config that is there in one value, or names the key and what is allowed. It never has
// another network.
func TestRemediesKeepTheConfig(t *testing.T) {
	const good = `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`
	place := "/coreos.com/network/config"
	for _, tt := range []struct{ config, remedy string }{
		{`{"Network":"10.5.0.0/16","Backend":{"Type":"upd"}}`, `etcdctl put ` + place +
			` '{"Backend":{"Type":"udp"},"Network":"10.5.0.0/16"}'`},
		{`{"network":"10.5.0.0/16","SubnetLen":25,"It's":1,"backend":{"Port":1,"type":"vxlam"}}`,
			`etcdctl put ` + place +
				` '{"It'\''s":1,"SubnetLen":25,"backend":{"Port":1,"type":"vxlan"},"network":"10.5.0.0/16"}'`},
		{`{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","PSK":"` + secretKey + `","Mode":"sepparate"}}`,
			`set Backend.Mode in ` + place + ` to "separate"`},
		{`{"Network":"10.5.0.0/16","pw":"hunter2","Backend":{"Type":"upd"}}`, `set Backend.Type in ` + place +
			` to "udp"`},
		{`{"Network":"10.5.0.0/33","Backend":{"Type":"udp"}}`, `set Network in ` + place + ` to what is allowed: `},
		{`{"Network":"10.5.0.0/16","Backend":{"Type":"zzzzzz"}}`, `set Backend.Type in ` + place +
			` to what is allowed: one of ["`},
		{`{"Network":"10.5.0.0/16"`, "correct or write " + place + ":"},
		{`[]`, "correct or write " + place + ":"},
	} {
		for _, from := range []string{place, FileSource + "/etc/net.json", "kube"} {
			f := healthy(t)
			f.Network.Raw, f.Network.From = []byte(tt.config), from
			f.Network.Network, f.Network.Err = routing.Parse(f.Network.Raw)
			f.Daemon.Status.Config.InUse = good
			for _, e := range joined(f.Network.Err) { // which are said once
				f.Daemon.Status.Config.Faults = append(f.Daemon.Status.Config.Faults, e.Error())
			}
			f.Settings.NetConfigPath = "/etc/net.json"
			f.Settings.Kube.On = from == "kube"
			if again := checkRunning(f); len(again) != 1 || again[0].Verdict != OK {
				t.Errorf("%s: %v", tt.config, again)
			}
			for _, x := range checkConfig(f) {
				if from == place && !strings.HasPrefix(x.Remedy, tt.remedy) {
					t.Errorf("%s: %q, want %q", tt.config, x.Remedy, tt.remedy)
				}
				if strings.Contains(x.Remedy, "10.42.") || strings.Contains(x.Remedy, "10.244.") ||
					strings.Contains(x.String(), "hunter2") || strings.Contains(x.String(), secretKey[:20]) ||
					x.Remedy == "" {
					t.Errorf("%s: %v", tt.config, x)
				}
				if from != place && (strings.Contains(x.Remedy, "etcdctl") ||
					!strings.Contains(x.Remedy, f.configPlace())) {
					t.Errorf("%s, from %s: %q", tt.config, from, x.Remedy)
				}
				if _, quoted, ok := strings.Cut(x.Remedy, place+" "); ok && strings.HasPrefix(quoted, "'") {
					// as a shell reads it
					out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted).Output()
					if c, errParse := routing.Parse(out); err != nil || errParse != nil ||
						c.Network.String() != "10.5.0.0/16" {
						t.Errorf("%s: %s: %v, %v", tt.config, out, err, errParse)
					}
				}
			}
		}
	}
}

// What the store no longer has is that of the last run, and a fault that only weftd sees is mended by the
// config in use.
func TestRemediesHaveTheConfigInUse(t *testing.T) {
	const used = `{"Network":"10.5.0.0/16","Backend":{"Type":"vxlan"}}`
	f := healthy(t)
	f.Network.Err = &lease.ConfigError{Key: "", Got: "empty", Want: "one"}
	if got := f.mend(f.Network.Err); strings.Contains(got, "{") {
		t.Errorf("%q", got)
	}
	f.Network.Err = exec.ErrNotFound // anything but a fault of the text
	if got := f.mend(f.Network.Err); strings.Contains(got, "{") {
		t.Errorf("%q", got)
	}
	f.Network.Last.Raw = []byte(used)
	typo := &lease.ConfigError{Key: "", Got: "a typo", Want: "one"}
	for _, f.Network.Err = range []error{f.Network.Err, typo} {
		if got := f.mend(f.Network.Err); !strings.HasSuffix(got, " '"+used+"'") {
			t.Errorf("%q", got)
		}
	}
	f.Daemon.Status.Config.InUse = used
	if got := f.mendRunning("its port is taken"); !strings.HasSuffix(got, " '"+used+"'") {
		t.Errorf("%q", got)
	}
	if got := f.mendRunning("it was tried, and did not come into place; a restart tries it again: routes: x"); got !=
		"remove the cause that is named there, then systemctl restart weftd" {
		t.Errorf("%q", got)
	}
	hidden := routing.WithoutSecrets([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","PSK":"` +
		secretKey + `"}}`))
	f.Daemon.Status.Config.InUse = string(hidden)
	if got := f.mendRunning("its port is taken"); strings.Contains(got, "{") {
		t.Errorf("a secret that is hidden would be put: %q", got)
	}
	f.Network.Last.Raw = []byte(strings.Replace(used, `"vxlan"`, `"wireguard","PSK":"`+secretKey+`"`, 1))
	if got := f.mend(f.Network.Err); strings.Contains(got, "{") {
		t.Errorf("%q", got)
	}
}

// Beside a bad config, weftd's own faults are still said, and those of the config once.
func TestFaultsBesideABadConfig(t *testing.T) {
	f := healthy(t)
	_, f.Network.Err = routing.Parse([]byte("{"))
	for fault, want := range map[string]Verdict{
		"its port is taken": Fault, f.Network.Err.Error(): OK, keeper.ErrNoConfig.Error(): OK,
	} {
		f.Daemon.Status.Config.Faults = []string{fault}
		if got := checkRunning(f); len(got) != 1 || got[0].Verdict != want {
			t.Errorf("%s: %v, want %s", fault, got, want)
		}
	}
}

func TestRemediesAskTheStoreInUse(t *testing.T) {
	f := healthy(t)
	f.Settings.Store = options.Store{Endpoints: []string{"https://192.0.2.9:2379", "https://192.0.2.10:2379"},
		CAFile: "/ca.pem", CertFile: "/c.pem", KeyFile: "/k.pem", Username: "weft"}
	const flags = "--endpoints=https://192.0.2.9:2379,https://192.0.2.10:2379 --cacert=/ca.pem --cert=/c.pem " +
		"--key=/k.pem "
	for command, want := range map[string]string{
		"etcdctl put /x '{}'":       "etcdctl " + flags + "--user=weft put /x '{}'",
		"etcdctl get --keys-only /": "etcdctl " + flags + "--user=weft get --keys-only /",
		"weft status":               "weft status",
	} {
		if got := f.withStore(command); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// Two configs that differ in a secret differ, and neither shows it.
func TestChangesShowNoSecret(t *testing.T) {
	var c [2]routing.Network
	for i, key := range []string{secretKey, "b" + secretKey[1:]} {
		var err error
		if c[i], err = routing.Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"wireguard","PSK":"` + key +
			`"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if got := changes(c[0], c[1]); len(got) != 1 || strings.Contains(got[0], secretKey[1:20]) {
		t.Errorf("%q", got)
	}
}

// sysctl takes a dot in a link's name for a slash, and a slash for a dot.
func TestSettingsOfLinksWithDots(t *testing.T) {
	f := healthy(t)
	f.Links.Links[1].Name, f.Links.Links[0].Name, f.Links.Underlay.Name = "flannel.1", "eth0.10", "eth0.10"
	f.Kernel.Settings["ipv4/conf/flannel.1/forwarding"], f.Kernel.Settings["ipv4/conf/all/rp_filter"] = "0", "1"
	for i, want := range []string{"sysctl -w net.ipv4.conf.flannel/1.forwarding=1",
		"sysctl -w net.ipv4.conf.eth0/10.rp_filter=2"} {
		if found := [][]Finding{checkForwarding4(f), checkReversePath(f)}[i]; len(found) == 0 ||
			!strings.Contains(found[0].Remedy, want) {
			t.Errorf("%v, want %s", found, want)
		}
	}
}
