package manage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/statefiles"
	"weft/lease/atomicfile"
	"weft/lease/belief"
	"weft/lease/subnetenv"
	"weft/routing"
	"weft/routing/hostrules"
)

// clean removes first what carries packets, and then the rules that protect it, so that nothing is
// unprotected in between. It tries everything.
func (f *cleanupFlags) clean(ctx context.Context) (cleaned, error) {
	c := cleaned{DryRun: f.dryRun, Removed: []string{}}
	if f.rules {
		return c, errors.Join(f.cleanTUNs(&c), f.cleanIngress(&c), f.cleanRules(ctx, &c), f.giveBack(&c))
	}
	faults := []error{f.cleanHolder(ctx, &c), f.cleanRoutes(&c), f.cleanLinks(&c), f.cleanIngress(&c),
		f.giveBack(&c)}
	networks := f.networks()
	rules, err := hostrules.Remove(ctx, hostrules.RemoveOptions{DryRun: f.dryRun, Flannel: f.flannel,
		Networks: networks})
	c.Removed = append(c.Removed, rules...)
	faults = append(faults, err)
	if !f.flannel {
		rest, err := hostrules.Remove(ctx, hostrules.RemoveOptions{DryRun: true, Flannel: true, Networks: networks})
		c.Left = append(c.Left, slices.DeleteFunc(rest, func(line string) bool {
			return slices.Contains(rules, line)
		})...)
		faults = append(faults, err)
	}
	for _, other := range hostrules.OtherNetworks(networks) {
		c.Kept = append(c.Kept, "rules of network "+other+elsewhere)
	}
	if f.files {
		faults = append(faults, f.cleanFiles(&c))
	}
	return c, errors.Join(faults...)
}

// cleanRules removes the rules that a flannel does not need, and says which of weft's it leaves.
func (f *cleanupFlags) cleanRules(ctx context.Context, c *cleaned) error {
	networks := f.networks()
	removed, err := hostrules.Remove(ctx, hostrules.RemoveOptions{DryRun: f.dryRun, Port: true,
		Networks: networks})
	c.Removed = append(c.Removed, removed...)
	rest, also := hostrules.Remove(ctx, hostrules.RemoveOptions{DryRun: true, Networks: networks})
	for _, line := range rest {
		if !slices.Contains(removed, line) {
			c.Kept = append(c.Kept, line+": packets go by it as long as no flannel has its own")
		}
	}
	return errors.Join(err, also)
}

// do makes one change, unless it is a dry run. A thing that is gone already is neither a change nor an error.
func (f *cleanupFlags) do(c *cleaned, what string, change func() error, gone ...error) error {
	if !f.dryRun {
		err := change()
		for _, g := range gone {
			if errors.Is(err, g) {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("remove %s: %w", what, err)
		}
	}
	c.Removed = append(c.Removed, what)
	return nil
}

// cleanRoutes removes the routes of our protocol, of every kind and in every table, that are ours: by our
// devices, inside the networks that weftd had, or blackholes as weftd makes them. The number alone is not
// enough, since it may be somebody else's too.
func (f *cleanupFlags) cleanRoutes(c *cleaned) error {
	all, err := links()
	faults := []error{err}
	networks := f.networks()
	own := map[int]bool{}
	for _, l := range all {
		own[l.Attrs().Index] = isOurs(l) && !f.ofAnother(l)
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rs, err := netlink.RouteListFiltered(family,
			&netlink.Route{Protocol: routing.RouteProtocol, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENOENT) {
			continue // a kernel without IPv6
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			faults = append(faults, fmt.Errorf("list routes: %w", err))
		}
		for _, r := range rs {
			what := "route " + routeText(r)
			bare := hostrules.IsBlackhole(r) && len(networks) == 0
			if !own[r.LinkIndex] && !bare && !within(r.Dst, networks) {
				c.Kept = append(c.Kept, what+elsewhere)
				continue
			}
			faults = append(faults, f.do(c, what, func() error { return netlink.RouteDel(&r) }, unix.ESRCH))
		}
	}
	return errors.Join(faults...)
}

// elsewhere is why something that has weft's mark stays.
const elsewhere = ": it is in no network that weftd had here, by --subnet-file and --cache-dir"

// links lists this host's devices.
func links() ([]netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("list links: %w", err)
	}
	return all, nil
}

// ofAnother reports whether a device with weft's mark is another network's on this host: it has addresses and
// none in the networks that weftd had here, or has none and a process has it open, which is no weftd of ours
// then.
func (f *cleanupFlags) ofAnother(l netlink.Link) bool {
	addressed, ours := f.addresses(l)
	if !addressed {
		// A running weftd's open devices are ours, unless another network has a weftd here.
		its := f.running && len(hostrules.OtherNetworks(f.networks())) == 0
		return isTUN(l) && isOpen(l) && !f.force && !its
	}
	return !ours
}

// addresses reports whether a device has some, and whether one is in the networks that weftd had here, or may
// be.
func (f *cleanupFlags) addresses(l netlink.Link) (has, ours bool) {
	addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	networks := f.networks()
	ours = err != nil || len(networks) == 0
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() {
			has, ours = true, ours || within(a.IPNet, networks)
		}
	}
	return has, ours
}

// networks are those that weftd had here, as far as its files say.
func (f *cleanupFlags) networks() (ps []netip.Prefix) {
	if file, err := subnetenv.Read(f.subnetFile); err == nil {
		ps = slices.Concat(ps, file.Networks, file.IPv6Networks)
	}
	if network, err := belief.CachedConfig(f.cacheDir); err == nil {
		ps = append(ps, network.Networks()...)
	}
	return slices.DeleteFunc(ps, func(p netip.Prefix) bool { return !p.IsValid() })
}

// within reports whether dst lies in one of ps.
func within(dst *net.IPNet, ps []netip.Prefix) bool {
	if dst == nil {
		return false // the default route
	}
	a, _ := netip.AddrFromSlice(dst.IP)
	bits, _ := dst.Mask.Size()
	return slices.ContainsFunc(ps, func(p netip.Prefix) bool {
		return p.Bits() <= bits && p.Contains(a.Unmap())
	})
}

func routeText(r netlink.Route) string {
	s := "default"
	if r.Dst != nil {
		s = r.Dst.String()
	}
	if r.Type == unix.RTN_BLACKHOLE {
		s = "blackhole " + s
	}
	if r.Gw != nil {
		s += " via " + r.Gw.String()
	}
	if l, err := netlink.LinkByIndex(r.LinkIndex); err == nil && r.Type == unix.RTN_UNICAST {
		s += " dev " + l.Attrs().Name
	}
	return s
}

// cleanLinks removes the devices that have our names, kinds and mark, and with --flannel those that have
// flannel's names and kinds and not our mark.
func (f *cleanupFlags) cleanLinks(c *cleaned) error {
	all, err := links()
	faults := []error{err}
	for _, l := range all {
		what := fmt.Sprintf("link %s (%s)", l.Attrs().Name, l.Type())
		switch {
		case isOurs(l) && f.ofAnother(l):
			c.Kept = append(c.Kept, what+elsewhere)
		case isOurs(l), f.flannel && routing.IsFlannelLink(l):
			faults = append(faults, f.do(c, what, func() error { return netlink.LinkDel(l) }, unix.ENODEV))
		case routing.IsFlannelLink(l):
			c.Left = append(c.Left, what)
		}
	}
	return errors.Join(faults...)
}

// cleanIngress removes the tables that keep the frames of path raw from the IP stack.
func (f *cleanupFlags) cleanIngress(c *cleaned) error {
	names, err := routing.IngressTables()
	faults := []error{err}
	for _, name := range names {
		faults = append(faults, f.do(c, "nftables table netdev "+name, func() error {
			return routing.RemoveIngressTable(name)
		}, unix.ENOENT))
	}
	return errors.Join(faults...)
}

// giveBack turns off what weftd turned on of the underlay's device.
func (f *cleanupFlags) giveBack(c *cleaned) error {
	what, err := routing.GiveBackForwarding(f.cacheDir, f.dryRun)
	if what != "" {
		c.Removed = append(c.Removed, what)
	}
	return err
}

// cleanFiles removes the files that weftd writes, one by one, since other files may be in the same
// directories.
func (f *cleanupFlags) cleanFiles(c *cleaned) error {
	var faults []error
	names := []string{f.subnetFile}
	for _, name := range statefiles.Names() {
		names = append(names, filepath.Join(f.cacheDir, name))
	}
	for _, name := range names {
		names = append(names, name+atomicfile.Suffix) // of a weftd that was killed
	}
	for _, name := range names {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		faults = append(faults, f.do(c, "file "+name, func() error { return os.Remove(name) }, fs.ErrNotExist))
	}
	return errors.Join(faults...)
}
