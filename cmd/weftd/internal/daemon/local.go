package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"weft/cmd/internal/events"
	"weft/cmd/weftd/internal/reach"
	"weft/lease"
	"weft/lease/keeper"
	"weft/lease/subnetenv"
	"weft/routing/underlay"
)

// underlayOptions returns the options for choosing the underlay, from the flags and for the
// families that the network has: of each an address has to be published.
func (d *Daemon) underlayOptions(f Network) underlay.Options {
	u, network := d.cfg.Underlay, f.config
	if f.publicIP.IsValid() {
		u.PublicIP = f.publicIP
	}
	if f.publicIPv6.IsValid() {
		u.PublicIPv6 = f.publicIPv6
	}
	o := underlay.Options{
		Interfaces: u.Ifaces, Regexes: u.Regexes, CanReach: u.CanReach,
		PublicIP: u.PublicIP, PublicIPv6: u.PublicIPv6,
		IPv4: network.EnableIPv4, IPv6: network.EnableIPv6, AllFamilies: true,
	}
	for _, p := range []netip.Prefix{network.Network, network.IPv6Network} {
		if p.IsValid() {
			o.Overlay = append(o.Overlay, p)
		}
	}
	return o
}

// local returns what this node publishes about itself now.
func (d *Daemon) local(g *overlay) keeper.Local {
	g.mu.Lock()
	u, store := g.chosen, g.resolved
	g.mu.Unlock()
	data, v6data := g.backend.Publish()
	l := keeper.Local{
		Attrs: lease.Attrs{
			PublicIP: u.Ext4, PublicIPv6: u.Ext6,
			BackendType: g.backend.RecordType(), BackendData: data, BackendV6Data: v6data,
			Weft: &lease.Weft{Name: d.self.name, Recv: g.backend.Recv(), MTU: g.backend.MTU(), Probe: g.probePort(),
				Addrs: u.Unadvertised()},
		},
		Underlay: u.Local(),
	}
	for _, a := range []netip.Addr{u.Ext4, u.Ext6} {
		if a.IsValid() && !slices.Contains(l.Underlay, a) {
			l.Underlay = append(l.Underlay, a)
		}
	}
	for _, a := range append(reach.Literals(d.source.info().routed), store...) {
		if !a.IsLoopback() && !a.IsUnspecified() {
			l.Store = append(l.Store, a)
		}
	}
	return l
}

// moved handles a change of the underlay's addresses or MTU. The backend calls it, so
// it must not block.
func (d *Daemon) moved(g *overlay, u underlay.Link) {
	g.mu.Lock()
	g.chosen = u
	g.mu.Unlock()
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// resolveEvery is the time between look-ups of the store's names.
const resolveEvery = 5 * time.Minute

// resolveStore looks up the endpoints that are names, so that a peer's subnet that
// contains the store is not accepted. A name that does not resolve is left out.
func (d *Daemon) resolveStore(ctx context.Context, g *overlay) error {
	names := reach.Names(d.source.info().routed)
	for len(names) > 0 {
		found, err := reach.Lookup(ctx, names)
		if err != nil {
			d.log.Debug("not every name of the store was resolved", "reason", err)
		}
		slices.SortFunc(found, netip.Addr.Compare)
		g.mu.Lock()
		changed := len(found) > 0 && !slices.Equal(found, g.resolved)
		if changed {
			g.resolved = found
		}
		g.mu.Unlock()
		if changed {
			g.member.SetLocal(d.local(g))
		}
		if !pause(ctx, resolveEvery) {
			break
		}
	}
	return nil
}

// previous reads the subnet file that an earlier run, or flannel, wrote; its subnets are masked.
func previous(path string, log *slog.Logger) subnetenv.File {
	f, err := subnetenv.Read(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("the previous subnet is not known", "reason", err)
		}
		return subnetenv.File{}
	}
	f.Subnet, f.IPv6Subnet = f.Subnet.Masked(), f.IPv6Subnet.Masked()
	return f
}

// former returns the networks of f that are not those of network.
func former(f subnetenv.File, network lease.NetworkConfig) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range slices.Concat(f.Networks, f.IPv6Networks) {
		if p = p.Masked(); p.Bits() != 0 && p != network.Network && p != network.IPv6Network {
			out = append(out, p)
		}
	}
	return out
}

// subnetFile returns the subnet file in flannel's form: a subnet is written as its first address with its
// length.
func subnetFile(network lease.NetworkConfig, own lease.Subnets, mtu int, masq bool) subnetenv.File {
	f := subnetenv.File{MTU: mtu, IPMasq: masq}
	if network.EnableIPv4 && own.V4.IsValid() {
		f.Networks, f.Subnet = []netip.Prefix{network.Network},
			netip.PrefixFrom(own.V4.Addr().Next(), own.V4.Bits())
	}
	if network.EnableIPv6 && own.V6.IsValid() {
		f.IPv6Networks, f.IPv6Subnet = []netip.Prefix{network.IPv6Network},
			netip.PrefixFrom(own.V6.Addr().Next(), own.V6.Bits())
	}
	return f
}

func text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// hostName returns what our record says that people call us: the operator's choice, else the host's name.
// weftd that runs in a container has the host's, too, if it shares the host's network, as it has to. In
// Kubernetes it is "", since the Node has a name.
func (d *Daemon) hostName() string {
	if d.cfg.Kube.On {
		return ""
	}
	if d.cfg.NodeName != "" {
		return d.cfg.NodeName
	}
	host, err := os.Hostname()
	name := lease.HostName(host)
	if name == "" {
		d.log.Info("this host's name does not tell it from others: the node is called by its id, or as "+
			"--node-name says", "host", host, "reason", err)
	}
	return name
}

// called returns what people call this node; "" if it has no name, or that is not known yet.
// own is our record as far as it is known.
func (d *Daemon) called(own lease.Record) string {
	switch {
	case !d.cfg.Kube.On:
		return d.self.name
	case own.Kube != nil:
		return own.Name()
	}
	return d.cfg.Kube.NodeName
}

// writeSubnetFile brings the subnet file up to date, once the lease is known and
// the device is there, and the lease record with it.
func (d *Daemon) writeSubnetFile(g *overlay) {
	set, before := g.state()
	status := g.backend.Status()
	if set.Own.Subnets == (lease.Subnets{}) || !usable(status) {
		return
	}
	g.member.SetLocal(d.local(g))
	d.putSubnetFile(g, subnetFile(g.network.config.NetworkConfig, set.Own.Subnets, status.MTU,
		d.cfg.Rules.IPMasq), before)
}

// putSubnetFile writes f, if the file is not that already; before says why the last try failed, "" if it did
// not.
func (d *Daemon) putSubnetFile(g *overlay, f subnetenv.File, before string) {
	why := ""
	held, err := subnetenv.Holds(d.cfg.SubnetFile, f)
	if err != nil && before == "" && f.Equal(g.wanted()) {
		return // it was as it should be, and nobody can look now
	}
	if !held {
		if err := subnetenv.Write(d.cfg.SubnetFile, f); err != nil {
			why = err.Error()
		}
		switch again := f.Equal(g.wanted()); {
		case why != "" && why != before:
			d.log.Error("subnet file not written: container runtimes cannot use the subnet; it is tried again",
				"event", events.SubnetFile, "reason", why)
		case why == "" && again && before == "":
			d.log.Warn("the subnet file was gone or had been changed by somebody else: put back", "event",
				events.SubnetFile, "file", d.cfg.SubnetFile)
		case why == "":
			d.log.Info("subnet file written", "event", events.SubnetFile, "file", d.cfg.SubnetFile, "subnet",
				lease.Subnets{V4: f.Subnet, V6: f.IPv6Subnet}.String(), "mtu", f.MTU)
		}
	}
	g.mu.Lock()
	g.file, g.fileWhy = f, why
	g.mu.Unlock()
}

// wanted returns what the subnet file has to contain; zero as long as that is not known.
func (g *overlay) wanted() subnetenv.File {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.file
}

// keepSubnetFile makes apply write the subnet file again if that failed, or if the file is gone or has other
// contents, since no other writer of the file tells us.
func (d *Daemon) keepSubnetFile() {
	g, _ := d.current()
	if g == nil {
		return
	}
	f := g.wanted()
	if _, why := g.state(); why == "" {
		if held, err := subnetenv.Holds(d.cfg.SubnetFile, f); held || err != nil || f.Equal(subnetenv.File{}) {
			return
		}
	}
	select {
	case g.wake <- struct{}{}:
	default:
	}
}
