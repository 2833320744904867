package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"weft/cmd/weftd/internal/reach"
	"weft/lease"
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
func (d *Daemon) local(g *overlay) lease.Local {
	g.mu.Lock()
	u, store := g.chosen, g.resolved
	g.mu.Unlock()
	data, v6data := g.backend.Publish()
	l := lease.Local{
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
