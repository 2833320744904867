package options

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"weft/lease"
	"weft/routing/routehook"
)

// validate checks whether the flags fit together, and normalizes their values.
func (c *Config) validate() []error {
	var faults []error
	bad := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }

	if c.RenewMargin < time.Minute || c.RenewMargin >= 24*time.Hour {
		bad("--subnet-lease-renew-margin is %d: it has to be between 1 and 1439 minutes", c.RenewMargin/time.Minute)
	}
	if c.HealthzPort < 0 || c.HealthzPort > 65535 {
		bad("--healthz-port is %d: it has to be between 0 (off) and 65535", c.HealthzPort)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("--log-format is %q: it has to be text or json", c.Log.Format)
	}
	if f := c.Underlay.Forwarding; f != "" && f != "auto" && f != "on" && f != "off" {
		bad("--rx-udp-gro-forwarding is %q: it has to be auto, on or off", f)
	}
	if l := c.Embedded.Listen; l.IsValid() && l.Port() == 0 {
		bad("--embedded-etcd-listen is %s: the port has to be between 1 and 65535", l)
	}
	if c.SubnetFile == "" {
		bad("--subnet-file is empty: name the file that container runtimes read")
	}
	if r := c.Rootless; r.On && c.AllowExtension {
		bad("--allow-extension does not go with --rootless: its commands are the host's root's")
	}
	if c.CacheDir == "" {
		bad("--cache-dir is empty: name a directory that survives a reboot")
	}
	if h := c.Hook; h.URL != "" {
		if err := h.Check(); err != nil {
			bad("--route-hook-url, --route-hook-certfile and --route-hook-keyfile: %w", err)
		}
	} else if h != (routehook.Options{}) {
		bad("--route-hook-url is missing: the other flags of type route-hook are about the controller there")
	}
	if c.HolderTimeout < 0 {
		bad("--holder-timeout is %v: it has to be a time such as 15m, or 0 for no holder", c.HolderTimeout)
	}
	if !slices.Contains(ConfineWords(), c.Confine) {
		bad("--confine is %q: it has to be %s", c.Confine, strings.Join(ConfineWords(), ", "))
	}
	if c.NodeName != "" && !lease.ValidName(c.NodeName) {
		bad("--node-name is %q: it has to be 1 to 253 letters, digits, dots, dashes or underscores", c.NodeName)
	}
	for _, r := range c.Underlay.Regexes {
		if _, err := regexp.Compile(r); err != nil {
			bad("--iface-regex %q: %w", r, err)
		}
	}
	if c.Kube.On {
		return append(faults, c.validateKube()...)
	}
	faults = append(faults, c.Store.validate()...)
	if c.Embedded.On {
		if err := c.EmbeddedServer(nil).Check(); err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// validate checks the flags about the store without reading a file; etcd.Config
// has the other rules.
func (s *Store) validate() []error {
	var faults []error
	if len(s.Endpoints) == 0 {
		faults = append(faults, errors.New("--etcd-endpoints is empty: name at least one, such as "+
			"http://127.0.0.1:2379"))
	}
	s.Prefix = path.Clean(s.Prefix)
	if s.Password.Reveal() != "" && s.PasswordFile != "" {
		faults = append(faults, errors.New("--etcd-password and --etcd-password-file are both given: give one"))
	}
	return faults
}
