package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"weft/lease"
	"weft/routing"
)

// mend is how a fault of the network config is corrected: by the config that is there with one value changed
// if it is known what was meant, else by the key and what is allowed. An example would be put in the config's
// place, and give all pods other addresses.
func (f *Facts) mend(fault error) string {
	var c *lease.ConfigError
	switch {
	case !errors.As(fault, &c):
		return f.putLast()
	case c.Key == "" && routing.ShowsAll(f.Network.Last.Raw):
		return "correct it, or " + f.putLast()
	case c.Key == "":
		return "correct " + f.configPlace() + ", which has to be one JSON object"
	case c.Meant == "":
		allowed, _, _ := strings.Cut(c.Want, " such as ")
		return fmt.Sprintf("set %s in %s to what is allowed: %s", c.Key, f.configPlace(), allowed)
	}
	if config := withKey(f.Network.Raw, c.Key, c.Meant); routing.ShowsAll(config) {
		if _, err := routing.Parse(config); err == nil {
			return f.put(config)
		}
	}
	return fmt.Sprintf("set %s in %s to %q", c.Key, f.configPlace(), c.Meant)
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

// putLast is how a network config is made where there is none.
func (f *Facts) putLast() string {
	if routing.ShowsAll(f.Network.Last.Raw) {
		return "to have that of weftd's last run here: " + f.put(f.Network.Last.Raw)
	}
	return "write " + f.configPlace() + ": a JSON object with Network, the range of all pods, and Backend.Type"
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
		if x.value != "" && !strings.Contains(command, x.flag+" ") {
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

// smaller is how all nodes get an MTU that passes, in bytes of the underlay's packets.
func (f *Facts) smaller(mtu int) string {
	config := withKey(f.Network.Raw, "Backend.MTU", mtu)
	if _, err := routing.Parse(config); err != nil || !routing.ShowsAll(config) {
		return fmt.Sprintf("set Backend.MTU in %s to %d, and restart weftd on every node", f.configPlace(), mtu)
	}
	return f.put(config) + ", and restart weftd on every node"
}
