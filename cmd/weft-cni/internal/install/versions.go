package install

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"weft/cmd/weft-cni/internal/netconf"
)

// askTimeout bounds how long a plugin takes to say which versions it knows.
const askTimeout = 10 * time.Second

// networkConf is a network configuration, of one plugin or a list. A runtime calls every plugin in the newest
// of cniVersions and cniVersion that it knows itself. A runtime that does not know the key cniVersions,
// which came with 1.1.0, takes cniVersion.
type networkConf struct {
	Name        string     `json:"name"`
	Type        string     `json:"type"`
	CNIVersion  string     `json:"cniVersion"`
	CNIVersions []string   `json:"cniVersions"`
	Plugins     []listItem `json:"plugins"`
}

// listItem is a plugin of a list, with those that this program calls in turn if it is that plugin.
type listItem struct {
	Type     string `json:"type"`
	Delegate struct {
		Type string `json:"type"`
	} `json:"delegate"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
	Attach string `json:"attach"`
}

// programs are the plugins of a list that have to know a version, but for this program, which knows all.
func (f flags) programs(list []listItem) (out []string) {
	for _, p := range list {
		if !slices.Contains(f.names, p.Type) {
			out = append(out, p.Type)
			continue
		}
		if p.Attach != netconf.AttachDirect {
			out = append(out, cmp.Or(p.Delegate.Type, netconf.DefaultType))
		}
		out = append(out, cmp.Or(p.IPAM.Type, netconf.DefaultIPAM))
	}
	return out
}

// trim removes from conf's cniVersions the versions that one of its plugins does not know, and prints a line
// for each such plugin. It assumes that a plugin that cannot be asked knows no more than cniVersion. The rest
// of conf stays byte for byte, and a conf without cniVersions stays as it is.
func (f flags) trim(conf []byte, stdout io.Writer) ([]byte, error) {
	var c networkConf
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, err
	}
	left := slices.Clone(c.CNIVersions)
	for _, name := range f.programs(c.Plugins) {
		before := len(left)
		known, err := f.versions(name)
		left = slices.DeleteFunc(left, func(v string) bool {
			if err == nil {
				return !slices.Contains(known, v)
			}
			newer, parseErr := version.GreaterThan(v, c.CNIVersion)
			return newer || parseErr != nil
		})
		switch {
		case len(left) == before:
		case err != nil:
			fmt.Fprintf(stdout, "CNI versions newer than %s are left out: plugin %s cannot be asked for those that "+
				"it knows: %v\n", c.CNIVersion, name, err)
		default:
			fmt.Fprintf(stdout, "CNI versions are %s: plugin %s knows %s\n", strings.Join(left, ", "), name,
				strings.Join(known, ", "))
		}
	}
	if len(left) == len(c.CNIVersions) {
		return conf, nil
	}
	return replaceKey(conf, "cniVersions", left)
}

// versions asks the plugin of that name, in the directory to which this program is installed.
func (f flags) versions(name string) ([]string, error) {
	if f.binDir == "" {
		return nil, errors.New("there is no --bin-dir to find it in")
	}
	path, err := invoke.FindInPath(name, []string{f.binDir})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	info, err := invoke.GetVersionInfo(ctx, path,
		&invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: io.Discard}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return info.SupportedVersions(), nil
}

// replaceKey returns the JSON object text with another value for one of its keys.
func replaceKey(text []byte, key string, value any) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var old json.RawMessage
		if err := d.Decode(&old); err != nil {
			return nil, err
		}
		if name != key {
			continue
		}
		end := int(d.InputOffset())
		b, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		return slices.Concat(text[:end-len(old)], b, text[end:]), nil
	}
	return nil, fmt.Errorf("no %q in it", key)
}
