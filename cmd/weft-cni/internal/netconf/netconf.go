// Package netconf turns the network configuration that a runtime hands to the
// plugin, and the node's subnet.env, into the configuration of the plugin that
// does the work. The result is the same as that of flannel's plugin, apart from
// its faults. The package does no I/O.
package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// The defaults, which are flannel's.
const (
	DefaultSubnetFile = "/run/flannel/subnet.env"
	DefaultDataDir    = "/var/lib/cni/flannel"
	DefaultType       = "bridge"     // of the delegate
	DefaultIPAM       = "host-local" // of its ipam
)

// Config is the plugin's own configuration, as standard input has it. Keys that weft does not know are kept
// as text and passed on.
type Config struct {
	// CNIVersion is "" if the configuration has none, which means 0.1.0.
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	// SubnetFile is the subnet.env to read. By default DefaultSubnetFile.
	SubnetFile string `json:"subnetFile"`
	// DataDir is where the state of attachments is. By default DefaultDataDir.
	DataDir string `json:"dataDir"`
	// ControlSocket is where a weftd is asked why there is no subnet file.
	ControlSocket string `json:"controlSocket"`
	// Delegate has the keys for the plugin that does the work, and IPAM those of its ipam.
	Delegate map[string]json.RawMessage `json:"delegate"`
	IPAM     map[string]json.RawMessage `json:"ipam"`
	// Attach is AttachDirect, or "" for an interface that another plugin makes.
	Attach string `json:"attach"`
	// GSOMaxSize bounds the superpackets that leave the pod.
	GSOMaxSize GSOLimit `json:"gsoMaxSize"`

	RuntimeConfig json.RawMessage `json:"runtimeConfig"`
	DNS           json.RawMessage `json:"dns"`
	Args          json.RawMessage `json:"args"`
	PrevResult    json.RawMessage `json:"prevResult"`
	// Valid are the attachments that exist. Only GC gets it; it is nil if the runtime did not
	// give a list, which is not the same as an empty one. MisspeltValid has the name that an
	// early text of the specification gave to the key.
	Valid         []types.GCAttachment `json:"cni.dev/valid-attachments"`
	MisspeltValid []types.GCAttachment `json:"cni.dev/attachments"`
}

// Parse reads a configuration and joins all that is wrong in it.
func Parse(b []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("network configuration: %w", err)
	}
	if c.SubnetFile == "" {
		c.SubnetFile = DefaultSubnetFile
	}
	if c.DataDir == "" {
		c.DataDir = DefaultDataDir
	}
	if c.Valid == nil {
		c.Valid = c.MisspeltValid
	}
	return c, c.check()
}

func (c Config) check() error {
	var faults []error
	fault := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	for _, path := range [][2]string{{"subnetFile", c.SubnetFile}, {"dataDir", c.DataDir},
		{"controlSocket", c.ControlSocket}} {
		if path[1] != "" && !filepath.IsAbs(path[1]) {
			fault("%s: %q is not an absolute path", path[0], path[1])
		}
	}
	for _, key := range []string{"name", "ipam"} {
		if _, ok := c.Delegate[key]; ok {
			fault("delegate must not have %q: it is set from the network configuration's own %q", key, key)
		}
	}
	if _, err := c.delegateType(); err != nil {
		faults = append(faults, err)
	}
	if _, err := c.ipamType(); err != nil {
		faults = append(faults, err)
	}
	if _, err := c.ipamRoutes(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(append(faults, c.checkDirect()...)...)
}

func (c Config) delegateType() (string, error) {
	return pluginName(c.Delegate, "delegate", "type", DefaultType)
}

func (c Config) ipamType() (string, error) {
	return pluginName(c.IPAM, "ipam", "type", DefaultIPAM)
}

func (c Config) ipamRoutes() ([]json.RawMessage, error) {
	raw, ok := c.IPAM["routes"]
	if !ok {
		return nil, nil
	}
	var routes []json.RawMessage // passed on as they are, also with keys that types.Route lacks
	if err := errors.Join(json.Unmarshal(raw, &routes), json.Unmarshal(raw, &[]types.Route{})); err != nil {
		return nil, fmt.Errorf("ipam.routes: %w", err)
	}
	return routes, nil
}

// pluginName reads m[key], which has to be the name of a program and no path; absent is the name if m lacks
// it.
func pluginName(m map[string]json.RawMessage, object, key, absent string) (string, error) {
	raw, ok := m[key]
	if !ok {
		return absent, nil
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil || *s == "" ||
		strings.ContainsRune(*s, filepath.Separator) {
		return "", fmt.Errorf("%s.%s is %s, not the name of a plugin", object, key, raw)
	}
	return *s, nil
}
