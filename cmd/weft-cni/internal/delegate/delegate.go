// Package delegate calls the plugin that does the work, in the version of the specification that
// the runtime's configuration has: weft-cni install offers the runtime those that the plugin knows.
package delegate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"weft/cmd/weft-cni/internal/netconf"
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

// Add attaches, and returns the result.
func (c *Caller) Add(ctx context.Context, d netconf.Delegate, call Call) (types.Result, error) {
	path, err := c.Find(d.Type)
	if err != nil {
		return nil, err
	}
	return invoke.ExecPluginWithResult(ctx, path, d.Text(), call.with("ADD", c.path), c.exec)
}

// everyPlugin is a version that all plugins of these years know.
const everyPlugin = "0.4.0"

// Del detaches. A runtime that cached the configuration of the ADD asks for the version of that, which an
// earlier weft-cni may have lowered for the plugin.
func (c *Caller) Del(ctx context.Context, d netconf.Delegate, call Call) error {
	err := c.run(ctx, d, "DEL", call)
	if e := (*types.Error)(nil); errors.As(err, &e) && e.Code == types.ErrIncompatibleCNIVersion {
		return c.run(ctx, d.WithVersion(everyPlugin).WithPrevResult(nil), "DEL", call)
	}
	return err
}

// Check asks the plugin whether the attachment is as ADD left it.
func (c *Caller) Check(ctx context.Context, d netconf.Delegate, call Call) error {
	return c.run(ctx, withGateways(d), "CHECK", call)
}

// Status asks whether an ADD could succeed.
func (c *Caller) Status(ctx context.Context, d netconf.Delegate) error {
	return c.run(ctx, d, "STATUS", Call{})
}

// GC calls the plugin's GC with the valid attachments in d.
func (c *Caller) GC(ctx context.Context, d netconf.Delegate) error {
	return c.run(ctx, d, "GC", Call{})
}

func (c *Caller) run(ctx context.Context, d netconf.Delegate, command string, call Call) error {
	path, err := c.Find(d.Type)
	if err != nil {
		return err
	}
	return invoke.ExecPluginWithoutResult(ctx, path, d.Text(), call.with(command, c.path), c.exec)
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
	older, err := r.GetAsVersion(d.CNIVersion)
	if err != nil {
		return d
	}
	var text bytes.Buffer
	if older.PrintTo(&text) != nil {
		return d
	}
	return d.WithPrevResult(text.Bytes())
}

// ParseResult reads a result of version v, and converts it to the newest form.
func ParseResult(v string, text []byte) (*types100.Result, error) {
	result, err := create.Create(v, text)
	if err != nil {
		return nil, err
	}
	return types100.GetResult(result)
}

func (c Call) with(command, path string) *invoke.Args {
	return &invoke.Args{
		Command: command, ContainerID: c.ContainerID, NetNS: c.NetNS,
		PluginArgsStr: c.Args, IfName: c.IfName, Path: path,
	}
}
