package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/options"
	"weft/routing"
)

func checkSettings(f *Facts) findings {
	var out findings
	if f.Settings.NotKnown != "" {
		return says(Unknown, "those of weftd are not known: %s", f.Settings.NotKnown)
	}
	if f.Settings.Err != nil {
		for line := range strings.Lines(f.Settings.Err.Error()) {
			if line = strings.TrimSpace(line); line != "" && line != options.ErrUsage.Error() {
				out = out.says(Fault, "%s", line).about(f.Settings.From).
					do("weftd --help lists all flags, and weftd --check what each of them is")
			}
		}
	}
	for _, name := range f.Settings.Unknown {
		out = out.says(Warning, "the variable %s names no flag of weftd, and has no effect", name).
			do("weftd --help lists all flags; a variable is WEFTD_ and the flag in capitals")
	}
	return out.orOK("read from %s", f.Settings.From)
}

// leastMajor is the version of the kernel below which path socket does not work, and only path portable is
// left.
const leastMajor = 5

func checkRelease(f *Facts) findings {
	var major, minor int
	if n, _ := fmt.Sscanf(f.Kernel.Release, "%d.%d", &major, &minor); n < 2 {
		return says(Unknown, "the kernel's release is not known: %q", f.Kernel.Release)
	}
	if major < leastMajor {
		return says(Note, "Linux %s carries packets one by one", f.Kernel.Release).
			do("a newer kernel makes path socket or raw possible, which is many times as fast")
	}
	return says(OK, "Linux %s", f.Kernel.Release)
}

// userspaceDataPlane reports whether weft's data plane moves the packets here, as far as is known.
func (f *Facts) userspaceDataPlane() bool {
	switch f.Network.Facts().Carrier {
	case routing.CarrierWeft:
		return true
	case routing.CarrierEither:
		return f.Kernel.Feature != nil && errors.Is(f.Kernel.Feature, f.Network.Facts().Feature.Missing()) ||
			f.Daemon.Answers() && !routing.CarriesNothing(f.Daemon.Status.Backend.Path)
	case routing.CarrierKernel, routing.CarrierOthers:
		return false
	}
	return !f.Network.known()
}

func checkTUN(f *Facts) findings {
	var left findings
	for _, l := range f.overlayLinks() { // no weftd opens it again since somebody renamed it
		if l.Kind == "tuntap" && !l.Carrier && !isFlannels(l.Name) && !strings.HasPrefix(l.Name, "weft-") {
			left = left.says(Warning, "a TUN of weft's was renamed, and no process has it open").about(l.Name).
				do("ip link del %s", l.Name)
		}
	}
	switch err := f.Kernel.TUN; {
	case left != nil:
		return left
	case !f.userspaceDataPlane():
		return says(OK, "backend %s needs no TUN device here", f.Network.BackendType)
	case err == nil:
		return says(OK, "/dev/net/tun can be opened")
	case errors.Is(err, errHidden):
		return says(Unknown, "whether weftd can open /dev/net/tun is not known: %v", err)
	case errors.Is(err, fs.ErrPermission) && f.Settings.Rootless.On:
		return says(Fault, "the user-space data plane needs the TUN device: %v", err).
			do("as root: chmod 0666 /dev/net/tun, which is udev's default, and where nothing like udev does so at " +
				"each start, a line in tmpfiles.d; it harms nobody, since a device needs rights over a network " +
				"namespace")
	case errors.Is(err, fs.ErrPermission):
		return says(Fault, "the user-space data plane needs the TUN device: %v", err).
			do("run it as root; in a unit DeviceAllow=/dev/net/tun rw, in a container --device /dev/net/tun")
	default:
		return says(Fault, "the user-space data plane needs the TUN device: %v", err).
			do("modprobe tun; in a container --device /dev/net/tun, or mkdir -p /dev/net && mknod /dev/net/tun c " +
				"10 200")
	}
}

func checkFeature(f *Facts) findings {
	feature, err := f.Network.Facts().Feature, f.Kernel.Feature
	switch {
	case feature == nil:
		return says(OK, "nothing is asked of it")
	case err == nil:
		return says(OK, "the kernel has %s", feature.Name)
	case !errors.Is(err, feature.Missing()):
		return says(Unknown, "whether the kernel has %s: %v", feature.Name, err)
	case feature.Required == "" || f.Network.Facts().Carrier == routing.CarrierEither:
		return says(Note, "the kernel has no %s, and weft carries the packets in user space: %v",
			feature.Name, err).do("modprobe %s, if this kernel has the module", feature.Name)
	}
	return says(Fault, "the kernel has no %s, and %s: %v", feature.Name, feature.Required, err).
		do("modprobe %s", feature.Name)
}

func checkNetAdmin(f *Facts) findings {
	return f.capability("CAP_NET_ADMIN", f.Kernel.NetAdmin,
		says(Fault, "CAP_NET_ADMIN is missing: devices, addresses, routes and rules need it").
			do("run it as root; in a unit AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW, in a container --cap-add "+
				"NET_ADMIN").about(f.Kernel.Whose),
		says(Note, "this user has no CAP_NET_ADMIN: a weftd that is started by this user is one without root").
			do("weftd --rootless --check says whether it can be, and docs/rootless.md how; for one of the whole "+
				"host, run weft doctor as root"))
}

func checkNetRaw(f *Facts) findings {
	return f.capability("CAP_NET_RAW", f.Kernel.NetRaw,
		says(Warning, "CAP_NET_RAW is missing: path raw is not possible, and path auto takes the next best").
			do("in a unit AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW, in a container --cap-add NET_RAW").
			about(f.Kernel.Whose),
		says(OK, "a weftd that is started by this user is one without root, and uses path socket"))
}

// capability returns missing if weftd does not have it, or ordinary if that would be an ordinary user's.
func (f *Facts) capability(name string, has bool, missing, ordinary findings) findings {
	switch {
	case f.Kernel.CapabilitiesErr != nil:
		return says(Unknown, "capabilities of %s: %v", f.Kernel.Whose, f.Kernel.CapabilitiesErr)
	case f.Settings.Rootless.On:
		return says(OK, "weftd is an ordinary user's, and has in a user namespace what it needs")
	case has:
		return says(OK, "%s has %s", f.Kernel.Whose, name)
	case f.Kernel.Ordinary:
		return ordinary
	}
	return missing
}

func checkForwarding4(f *Facts) findings {
	return f.forwarding(f.Network.EnableIPv4 || !f.Network.known(), "IPv4", "ipv4/ip_forward",
		"ipv4/conf/%s/forwarding")
}

func checkForwarding6(f *Facts) findings {
	return f.forwarding(f.Network.EnableIPv6, "IPv6", "ipv6/conf/all/forwarding", "ipv6/conf/%s/forwarding")
}

// forwarding looks at the setting for all links, and at that of the overlay's own and of the pods' bridge.
func (f *Facts) forwarding(on bool, family, all, each string) findings {
	value, there := f.Kernel.Settings[all]
	switch {
	case !on:
		return says(OK, "the overlay has no %s", family)
	case !there:
		return says(Fault, "the kernel has no %s, and the network config enables it", family).
			do("remove it from the network config, or boot with %s", family)
	case value == "0":
		return says(Fault, "%s is 0: the kernel forwards nothing between pods and other hosts", key(all)).
			do("sysctl -w %s=1, and a line in /etc/sysctl.d, of which no other file may turn it off", key(all))
	}
	links := slices.Concat(f.overlayLinks(), f.podBridges())
	if f.Network.Facts().Direct { // what comes from peers comes by the underlay
		links = append(links, Link{Name: f.Links.Underlay.Name})
	}
	var out findings
	for _, l := range links {
		if name := fmt.Sprintf(each, l.Name); f.Kernel.Settings[name] == "0" {
			out = out.says(Fault, "%s is 0: nothing that comes in by %s is forwarded", key(name), l.Name).
				about(l.Name).do("sysctl -w %s=1", key(name))
		}
	}
	return out.orOK("%s is %s", key(all), value)
}

// key is the name of a setting as sysctl takes it: a dot in a link's name, as in flannel.1, is a slash there.
func key(file string) string { return "net." + strings.NewReplacer("/", ".", ".", "/").Replace(file) }

// checkPodBridge looks at the link behind which pods are that have no port of weftd's.
func checkPodBridge(f *Facts) findings {
	var out findings
	bridges := f.podBridges()
	for _, l := range bridges {
		if !l.Up {
			out = out.says(Fault, "the link is down: pods behind it reach nobody").about(l.Name).
				do("ip link set %s up", l.Name)
		}
	}
	own := f.Network.Own.V4
	if len(bridges) > 0 || !own.IsValid() {
		return out.orOK("no link of others with an address of this node's subnet is down")
	}
	for _, l := range f.Links.Links { // packets to this node's own pods leave by the overlay again then
		port := func(p Link) bool { return p.Master == l.Index && p.Kind == "veth" }
		if l.Kind == "bridge" && len(l.Addrs) == 0 && slices.ContainsFunc(f.Links.Links, port) {
			out = out.says(Fault, "it has ports and no address, and no link has one of this node's subnet %s: pods "+
				"behind it reach nobody", own.Masked()).about(l.Name).
				do("ip addr add %s dev %s, if its pods have addresses of %s; else make them anew",
					netip.PrefixFrom(own.Masked().Addr().Next(), own.Bits()), l.Name, own.Masked())
		}
	}
	return out.orOK("no link of others has an address of this node's subnet")
}

// podBridges are links of others with an address of this node's subnet, as a CNI plugin makes them.
func (f *Facts) podBridges() []Link {
	ours := func(p netip.Prefix) bool { return f.Network.Own.Contains(p.Addr()) }
	return f.linksThat(func(l Link) bool {
		return l.Alias != ownAlias && l.Name != f.Links.Underlay.Name && slices.ContainsFunc(l.Addrs, ours)
	})
}

// overlayLinks are weft's own links, without those of a second network, which have addresses of that.
func (f *Facts) overlayLinks() []Link {
	return f.linksThat(func(l Link) bool {
		second := len(l.Addrs) > 0 && !slices.ContainsFunc(f.Network.Networks(), func(n netip.Prefix) bool {
			return slices.ContainsFunc(l.Addrs, n.Overlaps)
		})
		return l.Alias == ownAlias && (!second || !f.Network.known())
	})
}

func (f *Facts) linksThat(are func(Link) bool) []Link {
	return slices.DeleteFunc(slices.Clone(f.Links.Links), func(l Link) bool { return !are(l) })
}

// ownAlias marks links of weft's, and ownProtocol its routes.
const (
	ownAlias    = "weft"
	ownProtocol = 119
)

// checkReversePath looks for what rp_filter dropped while the doctor looked, and for peers of which it will
// drop everything. It drops packets that come by another link than the one that leads to their sender.
func checkReversePath(f *Facts) findings {
	under := f.Links.Underlay.Name
	if under == "" {
		return says(Unknown, "no underlay is chosen")
	}
	var out findings
	for _, r := range f.peers() {
		if w, ok := f.Links.To[r.PublicIP]; ok && w.Err == nil && w.Link != under && f.strict(under) {
			out = out.says(Fault, "rp_filter is strict on %s, and this host's way to %s leads by %s: what the peer "+
				"sends here is dropped", under, r.PublicIP, w.Link).about(r.Called()).
				do("sysctl -w %s=2, or route %s by %s", rpFilter(under), r.PublicIP, under)
		}
	}
	if f.Kernel.ReversePathDrops == 0 || len(out) > 0 {
		return out.orOK("it dropped nothing, and all known peers are reached by %s", under)
	}
	v, silent := Warning, map[string]bool{} // links that lead to silent peers
	for _, p := range f.Daemon.Peers.Peers {
		if w, ok := f.Links.To[diagnose.UnderlayOf(p)]; ok && silentAt(p) {
			v, silent[w.Link] = Fault, true
		}
	}
	var links, commands []string
	for _, l := range f.Links.Links {
		if l.Up && len(l.Addrs) > 0 && l.Kind != "bridge" && l.Name != "lo" && l.Alias != ownAlias &&
			f.strict(l.Name) && (!silent[l.Name] || len(silent) > 1) {
			links = append(links, l.Name)
			commands = append(commands, "sysctl -w "+rpFilter(l.Name)+"=2")
		}
	}
	at := strings.Join(links, ", ")
	return says(v, "rp_filter dropped %d packets while this looked; it is strict on %s",
		f.Kernel.ReversePathDrops,
		at).about(at).because("packets come by another link than the one that leads to their sender").
		do("%s", strings.Join(commands, "; "))
}

// strict reports whether rp_filter is strict on a link.
func (f *Facts) strict(link string) bool {
	return max(f.setting("ipv4/conf/all/rp_filter"), f.setting("ipv4/conf/"+link+"/rp_filter")) == 1
}

func rpFilter(link string) string { return key("ipv4/conf/" + link + "/rp_filter") }

// setting is the number that a setting has; one that is not there is off.
func (f *Facts) setting(name string) int {
	n, _ := strconv.Atoi(f.Kernel.Settings[name])
	return n
}

// The number of connections that the kernel tracks, the most that it does, and the most neighbours of each
// family.
const (
	conntracked   = "netfilter/nf_conntrack_count"
	conntrackMost = "netfilter/nf_conntrack_max"
	neighbourMost = "/neigh/default/gc_thresh3"
)

func checkConntrack(f *Facts) findings {
	have, most := f.setting(conntracked), f.setting(conntrackMost)
	v := Warning
	switch {
	case most == 0:
		return says(OK, "no bound is known")
	case 10*have < 9*most:
		return says(OK, "%d of at most %d connections", have, most)
	case have >= most:
		v = Fault
	}
	return says(v, "%d of at most %d connections are tracked: in a full table the kernel forgets connections "+
		"that nobody answered, and if there are none, it drops packets of new ones", have, most).
		do("sysctl -w %s=%d", key(conntrackMost), 2*most)
}

// checkNeighbours looks whether packets are lost since the kernel has no room for one more neighbour. All
// network namespaces of the host share the tables, so pods and bridges of any kind fill them.
func checkNeighbours(f *Facts) findings {
	var out findings
	for _, n := range f.Kernel.Neighbours {
		name := strings.ToLower(n.Family) + neighbourMost
		most, bound := f.setting(name), key(name)
		switch {
		case n.Lately > 0:
			out = out.says(Fault, "the kernel's table of %s neighbours is full, with %d entries: while this looked, "+
				"%d found no room, and their packets were lost", n.Family, n.Entries, n.Lately)
		case most > 0 && n.Entries >= most-most/10:
			out = out.says(Warning, "the kernel's table of %s neighbours is nearly full: %d of %d; then packets to "+
				"new neighbours are lost", n.Family, n.Entries, most)
		default:
			continue
		}
		out.do("sysctl -w %s=%d, and the same in /etc/sysctl.d; half of that as %s. docs/performance.md has how "+
			"many it takes", bound, 4*max(most, 1024), strings.Replace(bound, "thresh3", "thresh2", 1))
	}
	return out.orOK("the kernel's tables of neighbours have room, or are not shown here")
}

// These say whether the kernel shows packets between ports of a bridge to iptables.
const (
	bridgeFiltered4 = "bridge/bridge-nf-call-iptables"
	bridgeFiltered6 = "bridge/bridge-nf-call-ip6tables"
)

func checkBridgeNetfilter(f *Facts) findings {
	if f.Network.EnableNFTables {
		return says(OK, "nftables is used, which does not need it")
	}
	v := Note
	if f.Settings.Kube.On {
		v = Warning
	}
	var out findings
	for i, on := range []bool{f.Network.EnableIPv4, f.Network.EnableIPv6} {
		file := [...]string{bridgeFiltered4, bridgeFiltered6}[i]
		value, there := f.Kernel.Settings[file]
		if !on || there && value != "0" {
			continue
		}
		load := "modprobe br_netfilter; "
		if there {
			load = ""
		}
		out = out.says(v, "%s is off: packets between pods on one bridge miss iptables, which matters where "+
			"kube-proxy uses it", key(file)).do("%ssysctl -w %s=1", load, key(file))
	}
	return out.orOK("iptables sees them")
}
