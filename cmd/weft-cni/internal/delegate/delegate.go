// Package delegate calls the plugin that does the work, in the version of the
// specification that the runtime's configuration has, or in an older one that the plugin
// knows.
package delegate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/cni/pkg/version"

	"weft/cmd/weft-cni/internal/netconf"
)

// ErrUnsupported says that the plugin is of a version that has no such command.
var ErrUnsupported = errors.New("the plugin does not know this command")

// The first versions with the commands that 0.1.0 lacks.
const (
	sinceCheck  = "0.4.0"
	sinceGC     = "1.1.0"
	sinceStatus = "1.1.0"
	oldest      = "0.1.0"
)

// Call has what the environment tells a plugin about the attachment.
type Call struct{ ContainerID, NetNS, IfName, Args string }

// Caller finds plugins and runs them. A delegate's errors are returned unchanged, so that
// their codes reach the runtime.
type Caller struct {
	path string
	exec invoke.Exec
}

// New makes a Caller that looks for plugins in path, a list as CNI_PATH has it. Their standard error goes to
// stderr.
func New(path string, stderr io.Writer) *Caller {
	return &Caller{path: path, exec: &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: stderr}}}
}

// Find returns where the plugin of that name is. The error names the directories.
func (c *Caller) Find(name string) (string, error) {
	path, err := c.exec.FindInPath(name, filepath.SplitList(c.path))
	if err != nil {
		return "", fmt.Errorf("plugin %s: %w: install it there (Debian: containernetworking-plugins; or "+
			"github.com/containernetworking/plugins)", name, err)
	}
	return path, nil
}

// Add attaches, and returns the result in the version that d asked for.
func (c *Caller) Add(ctx context.Context, d netconf.Delegate, call Call) (result types.Result, err error) {
	asked := d.CNIVersion
	err = c.negotiate(ctx, d, func(path string, d netconf.Delegate) error {
		result, err = invoke.ExecPluginWithResult(ctx, path, d.Text(), call.with("ADD", c.path), c.exec)
		return err
	})
	if err != nil {
		return nil, err
	}
	if asked == "" {
		asked = oldest
	}
	if result, err = result.GetAsVersion(asked); err != nil {
		return nil, fmt.Errorf("result of %s: %w", d.Type, err)
	}
	return result, nil
}

// Del detaches.
func (c *Caller) Del(ctx context.Context, d netconf.Delegate, call Call) error {
	return c.negotiate(ctx, d, func(path string, d netconf.Delegate) error {
		return invoke.ExecPluginWithoutResult(ctx, path, d.Text(), call.with("DEL", c.path), c.exec)
	})
}

// Check asks the plugin whether the attachment is as ADD left it. The error wraps
// ErrUnsupported if the plugin cannot tell.
func (c *Caller) Check(ctx context.Context, d netconf.Delegate, call Call) error {
	return c.negotiate(ctx, d, func(path string, d netconf.Delegate) error {
		if !atLeast(d.CNIVersion, sinceCheck) {
			return fmt.Errorf("CHECK of %s: %w", d.Type, ErrUnsupported)
		}
		return invoke.ExecPluginWithoutResult(ctx, path, withGateways(d).Text(), call.with("CHECK", c.path), c.exec)
	})
}

// withGateways adds the gateway to every route in the result of ADD that has none. Such a
// route goes through the gateway of the address (section 5, "gw"), but the plugins' CHECK
// looks for a route without a gateway, which is not there.
func withGateways(d netconf.Delegate) netconf.Delegate {
	r, err := ParseResult(d.CNIVersion, d.PrevResult())
	if err != nil {
		return d // and the plugin says what is wrong
	}
	for _, route := range r.Routes {
		for _, ip := range r.IPs {
			if route.GW == nil && len(ip.Gateway) > 0 && (ip.Gateway.To4() == nil) == (route.Dst.IP.To4() == nil) {
				route.GW = ip.Gateway
			}
		}
	}
	text, err := printed(r, d.CNIVersion)
	if err != nil {
		return d
	}
	return d.WithPrevResult(text)
}

// ParseResult reads a result of version v, and converts it to the newest form.
func ParseResult(v string, text []byte) (*types100.Result, error) {
	result, err := create.Create(v, text)
	if err != nil {
		return nil, err
	}
	return types100.GetResult(result)
}

// printed returns r as JSON in version v.
func printed(r types.Result, v string) ([]byte, error) {
	r, err := r.GetAsVersion(v)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = r.PrintTo(&text)
	return text.Bytes(), err
}

// Status asks whether an ADD could succeed. The error wraps ErrUnsupported if the
// plugin cannot tell.
func (c *Caller) Status(ctx context.Context, d netconf.Delegate) error {
	return c.sinceOrUnsupported(ctx, d, "STATUS", sinceStatus)
}

// GC calls the plugin's GC with the valid attachments in d. The error wraps ErrUnsupported
// if the plugin knows no GC.
func (c *Caller) GC(ctx context.Context, d netconf.Delegate) error {
	return c.sinceOrUnsupported(ctx, d, "GC", sinceGC)
}

// sinceOrUnsupported asks for the plugin's versions first, since an old plugin would take the
// command's name for a mistake.
func (c *Caller) sinceOrUnsupported(ctx context.Context, d netconf.Delegate, command, since string) error {
	path, err := c.Find(d.Type)
	if err != nil {
		return err
	}
	v, err := c.common(ctx, path, d.CNIVersion)
	if err != nil {
		return err
	}
	if !atLeast(v, since) {
		return fmt.Errorf("%s of %s: %w", command, d.Type, ErrUnsupported)
	}
	return invoke.ExecPluginWithoutResult(ctx, path, d.Text(), Call{}.with(command, c.path), c.exec)
}

// negotiate calls do, and calls it again with an older version of the specification if the
// plugin refuses d's. It does not ask the plugin for its versions first, since that would
// cost a process for every pod, mostly for nothing.
func (c *Caller) negotiate(ctx context.Context, d netconf.Delegate,
	do func(string, netconf.Delegate) error) error {
	path, err := c.Find(d.Type)
	if err != nil {
		return err
	}
	err = do(path, d)
	if e := (*types.Error)(nil); !errors.As(err, &e) || e.Code != types.ErrIncompatibleCNIVersion {
		return err
	}
	v, versionErr := c.common(ctx, path, d.CNIVersion)
	if versionErr != nil || v == "" || v == d.CNIVersion {
		return err
	}
	older, convertErr := lower(d, v)
	if convertErr != nil {
		return errors.Join(err, convertErr)
	}
	return do(path, older)
}

// common returns the newest version that the plugin at path knows and that is not newer
// than wanted; "" if there is none.
func (c *Caller) common(ctx context.Context, path, wanted string) (string, error) {
	info, err := invoke.GetVersionInfo(ctx, path, c.exec)
	if err != nil {
		return "", fmt.Errorf("versions of %s: %w", filepath.Base(path), err)
	}
	best := ""
	for _, v := range info.SupportedVersions() {
		if atLeast(wanted, v) && (best == "" || atLeast(v, best)) {
			best = v
		}
	}
	return best, nil
}

// lower returns d in version v, and so is the result of ADD in it.
func lower(d netconf.Delegate, v string) (netconf.Delegate, error) {
	prev := d.PrevResult()
	d = d.WithVersion(v)
	if prev == nil {
		return d, nil
	}
	var in struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(prev, &in); err != nil {
		return d, fmt.Errorf("prevResult: %w", err)
	}
	if in.CNIVersion == "" {
		return d, nil
	}
	result, err := create.Create(in.CNIVersion, prev)
	if err != nil {
		return d, fmt.Errorf("prevResult: %w", err)
	}
	text, err := printed(result, v)
	if err != nil {
		return d, fmt.Errorf("prevResult in version %s: %w", v, err)
	}
	return d.WithPrevResult(text), nil
}

// atLeast reports whether v is min or newer; one that does not parse is not. "" is the oldest.
func atLeast(v, min string) bool {
	if v == "" {
		v = oldest
	}
	ok, err := version.GreaterThanOrEqualTo(v, min)
	return ok && err == nil
}

func (c Call) with(command, path string) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: c.ContainerID, NetNS: c.NetNS,
		PluginArgsStr: c.Args, IfName: c.IfName, Path: path,
	}
}
