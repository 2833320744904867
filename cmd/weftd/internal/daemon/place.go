package daemon

import (
	"cmp"
	"errors"
	"fmt"

	"weft/cmd/internal/control"
	"weft/routing"
)

// openKernels opens the namespaces of the TUN and of the underlay, which mostly are one.
func (d *Daemon) openKernels() (kernel, outside *routing.Kernel, err error) {
	if outside, err = routing.OpenKernel(); err != nil || !d.cfg.Rootless.Place.Elsewhere {
		return outside, outside, err
	}
	if kernel, err = routing.OpenKernelIn(d.cfg.Rootless.Place.FD); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("the network namespace of the TUN: %w", err), outside.Close())
	}
	return kernel, outside, nil
}

// closeKernels frees what openKernels opened.
func closeKernels(kernel, outside *routing.Kernel) {
	_ = kernel.Close() // descriptors of this process only
	if outside != kernel {
		_ = outside.Close() // and so are these
	}
}

// elsewhere is the namespace of the underlay, if that is another one than the TUN's; else nil.
func (g *overlay) elsewhere() *routing.Kernel {
	if g.outside == g.kernel {
		return nil
	}
	return g.outside
}

// sayPlace logs, once, where the TUN is and what weft leaves alone there.
func (d *Daemon) sayPlace() {
	p := d.cfg.Rootless.Place
	if !p.Elsewhere {
		return
	}
	d.log.Info("the TUN is in another network namespace than the underlay", "pid", p.PID, "path", p.Path,
		"made", p.Own)
	if p.User {
		d.log.Info("without root: path raw, rx-udp-gro-forwarding and rules that guard the overlay's port need " +
			"rights over the underlay's namespace, and are off")
	}
}

// ofOneUser is what to do about a port that is taken, without root: it may be another user's.
func (d *Daemon) ofOneUser() string {
	if !d.cfg.Rootless.Place.User {
		return ""
	}
	return " A port of a host is one user's, and a network has one port on all hosts: if it is another user's " +
		"weftd, or root's, have a network of your own, with a Backend.Port above 1023 and a Network of its own " +
		"under another --etcd-prefix. " +
		"If a weftd of yours had another --control-socket, as with another XDG_RUNTIME_DIR, or none, what keeps " +
		"its descriptors (weftd holder) keeps the port too, until --holder-timeout is over or you end it"
}

// namespaceStatus says where the TUN is; nil where the underlay is.
func (d *Daemon) namespaceStatus() *control.Namespace {
	p := d.cfg.Rootless.Place
	if !p.Elsewhere {
		return nil
	}
	n := &control.Namespace{PID: p.PID, Path: p.Path, Own: p.Own, Rootless: p.User, Out: d.wayOut()}
	switch {
	case p.PID != 0 && p.User:
		n.Enter = fmt.Sprintf("nsenter -t %d -U -n --preserve-credentials", p.PID)
	case p.PID != 0:
		n.Enter = fmt.Sprintf("nsenter -t %d -n", p.PID)
	case p.Path != "" && !p.User:
		n.Enter = "nsenter --net=" + p.Path
	}
	return n
}

// wayOut finds the default routes where the TUN is; nil if that cannot be asked.
func (d *Daemon) wayOut() *control.WayOut {
	k, err := routing.OpenKernelIn(d.cfg.Rootless.Place.FD)
	if err != nil {
		return nil
	}
	defer func() { _ = k.Close() }() // it was only asked
	routes, err := k.DefaultRoutes()
	if err != nil {
		return nil
	}
	devices, err := k.Devices()
	if err != nil {
		return nil
	}
	names := map[int]string{}
	for _, x := range devices {
		names[x.Index] = x.Name
	}
	out := &control.WayOut{Masquerade: d.cfg.Rules.IPMasq}
	for _, r := range routes { // of several any shows that there is one
		if r.Six {
			out.IPv6 = cmp.Or(out.IPv6, names[r.Index])
		} else {
			out.IPv4 = cmp.Or(out.IPv4, names[r.Index])
		}
	}
	return out
}
