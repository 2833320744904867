package options

import "strings"

// Effect says what a reload does with a changed setting.
type Effect int

// The effects. The zero Effect is none.
const (
	// Live is in force at once.
	Live Effect = iota + 1
	// Restart takes a restart.
	Restart
	// Idle has no effect in any case.
	Idle
)

// String returns the word that docs/reference/flags.md has for it.
func (e Effect) String() string {
	switch e {
	case Live:
		return "at once"
	case Restart:
		return "restart"
	case Idle:
		return "no effect"
	}
	return ""
}

// EffectOf says what a reload does with the flag of that name, which is one of Config.Settings. With the
// embedded etcd, which has the certificates too, other files than before take a restart; new contents of the
// same files do not.
func (c Config) EffectOf(name string) Effect {
	e := rowOf(name).effect
	if e == 0 || c.Embedded.On && strings.HasPrefix(name, "etcd-") {
		return Restart
	}
	return e
}

// Change is a setting that has another value than before. A secret shows as "set".
type Change struct {
	Name, From, To string
	Effect         Effect
}

// Changes returns what of now differs from c, in the order of names.
func (c Config) Changes(now Config) []Change {
	before := map[string]string{}
	for _, s := range c.Settings {
		before[s.Name] = s.Value
	}
	var out []Change
	for _, s := range now.Settings {
		secret := s.Name == "etcd-password" && c.Store.Password.Reveal() != now.Store.Password.Reveal()
		if before[s.Name] != s.Value || secret {
			out = append(out, Change{Name: s.Name, From: before[s.Name], To: s.Value, Effect: c.EffectOf(s.Name)})
		}
	}
	return out
}

// With returns c with those settings of now that a reload can change. source says that those about the store,
// or the API server, are among them.
func (c Config) With(now Config, source bool) Config {
	out := c
	out.Log = now.Log
	if source && !c.Embedded.On {
		prefix := c.Store.Prefix
		out.Store = now.Store
		out.Store.Prefix = prefix
		out.endpointsGiven = now.endpointsGiven
	}
	if source {
		out.Kube.APIURL, out.Kube.Kubeconfig = now.Kube.APIURL, now.Kube.Kubeconfig
	}
	live := map[string]Setting{}
	for _, s := range now.Settings {
		if c.EffectOf(s.Name) == Live && (source || s.Name == "v" || s.Name == "log-format") {
			live[s.Name] = s
		}
	}
	out.Settings = nil
	for _, s := range c.Settings {
		if n, ok := live[s.Name]; ok {
			s = n
		}
		out.Settings = append(out.Settings, s)
	}
	return out
}
