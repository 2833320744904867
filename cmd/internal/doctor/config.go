package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weft/lease"
	"weft/lease/keeper"
	"weft/routing"
)

func checkConfig(f *Facts) findings {
	n := f.Network
	switch {
	case n.From == "":
		return says(Unknown, "it is in the store, which was not read")
	case n.Err == nil:
		return says(OK, "%s, backend %s, from %s",
			lease.Subnets{V4: n.NetworkConfig.Network, V6: n.IPv6Network}, n.BackendType, n.From)
	}
	var out findings
	for _, fault := range joined(n.Err) {
		found, remedy := oneLine(fault), f.mend(fault)
		if f.Store.Asked && f.Store.Err == nil && f.Store.Snapshot.Config == nil {
			found += ", with --etcd-prefix " + f.Settings.Store.Prefix
			remedy += "; etcdctl get --prefix --keys-only / | grep /config shows whether it has another prefix"
			if n.LastStore != "" {
				found += "; weftd's last run here had " + n.LastStore
				remedy = "set --etcd-prefix " + n.LastStore + " and restart weftd"
			}
		}
		out = out.says(Fault, "%s", found).about(n.From).do("%s", remedy)
	}
	return out
}

func checkKeys(f *Facts) findings {
	if len(f.Network.Raw) == 0 {
		return says(Unknown, "there is no network config to look at")
	}
	var out findings
	for _, u := range f.Network.Unknown {
		out = out.says(Warning, "%s", u).about(f.Network.From).
			do("correct it there, unless it is another program's: weft goes on as if it were absent")
	}
	return out.orOK("all are known")
}

func checkRunning(f *Facts) findings {
	var out findings
	if !f.Daemon.Answers() {
		last := f.Network.Last
		switch {
		case !f.Network.HasLast():
			return says(Unknown, "weftd does not answer, and left no last good network config")
		case !f.Network.known():
			return says(Unknown, "there is nothing to compare with the last good one, %s",
				lease.Subnets{V4: last.Network, V6: last.IPv6Network})
		}
		for _, change := range changes(last, f.Network.Network) {
			out = out.says(Note, "a start of weftd would change since its last run: %s", change)
		}
		return out.orOK("the one of the last run")
	}
	c := f.Daemon.Status.Config
	for _, fault := range c.Faults {
		said := slices.ContainsFunc(joined(f.Network.Err), func(err error) bool { // by check network-config
			return fault == strings.TrimSpace(err.Error()) || fault == keeper.ErrNoConfig.Error()
		})
		if !said {
			out = out.says(Fault, "the network config is not the one in use, and cannot be: %s", fault).
				do("%s", f.mendRunning(fault))
		}
	}
	if len(c.Changes) > 0 {
		out = out.says(Warning, "a restart of weftd would change: %s", strings.Join(c.Changes, "; ")).
			do("restart weftd on every node, since one that starts uses the new network config; or write the old one "+
				"back: %s", f.put([]byte(c.InUse)))
	}
	switch {
	case c.Differs && len(out) == 0 && f.Network.Err == nil:
		return says(Warning, "the network config is not the one in use").do("weft status")
	case f.Network.Err != nil:
		return out.orOK("weftd goes on with the last good one")
	}
	return out.orOK("the one in use")
}

// changes says in what two configurations differ: in what peers and pods see, or else in what only this node
// does.
func changes(before, after routing.Network) (out []string) {
	diff := before.Diff(after)
	for _, c := range diff {
		if c.Seen || !diff[0].Seen {
			out = append(out, c.String())
		}
	}
	return out
}

// mend is how a fault of the network config is corrected: by the config that is there with one value changed
// if it is known what was meant, else by the key and what is allowed. An example would be put in the config's
// place, and give all pods other addresses.
func (f *Facts) mend(fault error) string {
	var c *lease.ConfigError
	last := f.Network.Last.Raw
	switch known := routing.ShowsAll(last); {
	case errors.As(fault, &c) && c.Meant != "":
		return f.set(c.Key, c.Meant)
	case errors.As(fault, &c) && c.Key != "":
		allowed, _, _ := strings.Cut(c.Want, " such as ")
		return fmt.Sprintf("set %s in %s to what is allowed: %s", c.Key, f.configPlace(), allowed)
	case known:
		return "correct it, or have that of weftd's last run here: " + f.put(last)
	}
	return "correct or write " + f.configPlace() + ": one JSON object with Network, the range of all pods, " +
		"and Backend.Type"
}

// mendRunning is how a config is corrected that weftd does not take into use, for that reason. One that was
// tried may be right, and the host not ready for it.
func (f *Facts) mendRunning(fault string) string {
	used := []byte(f.Daemon.Status.Config.InUse)
	switch {
	case strings.Contains(fault, "a restart tries it again"):
		return "remove the cause that is named there, then systemctl restart weftd"
	case routing.ShowsAll(used):
		return "correct it, or write back the one in use: " + f.put(used)
	}
	return "correct " + f.configPlace() + ": weft status --json shows it, and the one in use"
}

// set is how the network config gets one other value.
func (f *Facts) set(key string, value any) string {
	config := withKey(f.Network.Raw, key, value)
	if _, err := routing.Parse(config); err == nil && routing.ShowsAll(config) {
		return f.put(config)
	}
	text, _ := json.Marshal(value) // a string or a number
	return fmt.Sprintf("set %s in %s to %s", key, f.configPlace(), text)
}

// smaller is how all nodes get an MTU that passes, in bytes of the underlay's packets.
func (f *Facts) smaller(mtu int) string {
	return f.set("Backend.MTU", mtu) + ", and restart weftd on every node"
}

// put is how a network config is written.
func (f *Facts) put(config []byte) string {
	text := strings.TrimSpace(string(config))
	switch {
	case f.Settings.Kube.On:
		return "in " + f.configPlace() + " write " + text + ", then restart weftd"
	case f.Network.fromFile():
		return "in " + f.configPlace() + " write " + text
	}
	return "etcdctl put " + f.configPlace() + " '" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// withStore has etcdctl in a command ask the store in use, as weftd does. It asks for a password itself.
func (f *Facts) withStore(command string) string {
	const tool = "etcdctl "
	if f.Settings.Kube.On || !strings.Contains(command, tool) {
		return command
	}
	s, flags := f.Settings.Store, ""
	for _, x := range [...]struct{ flag, value string }{{"--endpoints", strings.Join(s.Endpoints, ",")},
		{"--cacert", s.CAFile}, {"--cert", s.CertFile}, {"--key", s.KeyFile}, {"--user", s.Username}} {
		if x.value != "" {
			flags += x.flag + "=" + x.value + " "
		}
	}
	return strings.ReplaceAll(command, tool, tool+flags)
}

// configPlace is where the network config is.
func (f *Facts) configPlace() string {
	switch {
	case f.Settings.Kube.On:
		return "the ConfigMap's net-conf.json"
	case f.Network.fromFile():
		return f.Settings.NetConfigPath
	}
	return f.Settings.Store.Prefix + "/config"
}

// FileSource begins Network.From where a file is the source.
const FileSource = "--net-config-path "

func (n Network) fromFile() bool { return strings.HasPrefix(n.From, FileSource) }

// joined returns the errors that err joins, each of which is one fault.
func joined(err error) (out []error) {
	several, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, one := range several.Unwrap() {
			out = append(out, joined(one)...)
		}
	case err != nil:
		out = []error{err}
	}
	return out
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// withKey returns a network config with one value set, or nil if it cannot be; key is one of the config's, or
// Backend and one of Backend's.
func withKey(config []byte, key string, value any) []byte {
	object := map[string]json.RawMessage{}
	if len(config) > 0 && json.Unmarshal(config, &object) != nil {
		return nil
	}
	at, rest, below := strings.Cut(key, ".")
	for k := range object {
		if strings.EqualFold(k, at) {
			at = k
		}
	}
	fresh, err := json.Marshal(value)
	if below {
		fresh = withKey(object[at], rest, value)
	}
	if err != nil || fresh == nil {
		return nil
	}
	object[at] = fresh
	out, _ := json.Marshal(object) // it was read
	return out
}
