package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

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
			because("it is misspelt").do("weftd --help lists all flags; a variable is WEFTD_ and the flag in capitals")
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
			because("segmentation of UDP and of the TUN's packets came with Linux 5.0").
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
			f.Daemon.answers() && !routing.CarriesNothing(f.Daemon.Status.Backend.Path)
	case routing.CarrierKernel, routing.CarrierOthers:
		return false
	}
	return !f.Network.known()
}

func checkTUN(f *Facts) findings {
	if left := f.leftTUNs(); len(left) > 0 {
		return left
	}
	switch {
	case !f.userspaceDataPlane():
		return says(OK, "backend %s needs no TUN device here", f.Network.BackendType)
	case f.Kernel.TUN == nil:
		return says(OK, "/dev/net/tun can be opened")
	case errors.Is(f.Kernel.TUN, errHidden):
		return says(Unknown, "whether weftd can open /dev/net/tun is not known: %v", f.Kernel.TUN)
	}
	x := says(Fault, "/dev/net/tun cannot be opened: %v", bare(f.Kernel.TUN))
	switch {
	case errors.Is(f.Kernel.TUN, fs.ErrNotExist), errors.Is(f.Kernel.TUN, unix.ENODEV),
		errors.Is(f.Kernel.TUN, unix.ENXIO):
		x = x.because("the module tun is not loaded, or this container was not given the device").
			do("modprobe tun; in a container --device /dev/net/tun, or mkdir -p /dev/net && mknod /dev/net/tun c " +
				"10 200")
	case errors.Is(f.Kernel.TUN, fs.ErrPermission) && f.Settings.Rootless.On:
		x = x.because("it is not this user's to open, though udev's default is 0666").
			do("as root: chmod 0666 /dev/net/tun, and where nothing like udev does so at each start, a line in " +
				"tmpfiles.d; it harms nobody, since a device needs rights over a network namespace")
	case errors.Is(f.Kernel.TUN, fs.ErrPermission):
		x = x.because("this is not run as root, or the unit's DeviceAllow or the container's device cgroup " +
			"forbids it").
			do("run it as root; in a unit DeviceAllow=/dev/net/tun rw, in a container --device /dev/net/tun")
	default:
		x = x.do("the user-space data plane needs it: load the module tun")
	}
	return x
}

// leftTUNs are weft's that no process has open, and that no weftd opens again since somebody renamed them.
func (f *Facts) leftTUNs() (out findings) {
	for _, l := range f.overlayLinks() {
		if l.Kind == "tuntap" && !l.Carrier && !isFlannels(l.Name) && !strings.HasPrefix(l.Name, "weft-") {
			out = out.says(Warning, "a TUN of weft's is left, and no process has it open").about(l.Name).
				because("somebody renamed it").do("ip link del %s", l.Name)
		}
	}
	return out
}

func checkFeature(f *Facts) findings {
	feature := f.Network.Facts().Feature
	switch {
	case feature == nil:
		return says(OK, "nothing is asked of it")
	case f.Kernel.Feature == nil:
		return says(OK, "the kernel has %s", feature.Name)
	case !errors.Is(f.Kernel.Feature, feature.Missing()):
		return says(Unknown, "whether the kernel has %s: %v", feature.Name, f.Kernel.Feature)
	case feature.Required == "" || f.Network.Facts().Carrier == routing.CarrierEither:
		return says(Note, "the kernel has no %s, and weft carries the packets in user space", feature.Name).
			because("%v", f.Kernel.Feature).do("modprobe %s, if this kernel has the module", feature.Name)
	}
	return says(Fault, "the kernel has no %s, and %s", feature.Name, feature.Required).
		because("%v", f.Kernel.Feature).do("modprobe %s", feature.Name)
}

func checkNetAdmin(f *Facts) findings {
	switch {
	case f.Kernel.CapabilitiesErr != nil:
		return says(Unknown, "capabilities of %s: %v", f.Kernel.Whose, f.Kernel.CapabilitiesErr)
	case f.Settings.Rootless.On:
		return says(OK, "weftd is an ordinary user's, and has it in a user namespace")
	case f.Kernel.NetAdmin:
		return says(OK, "%s has CAP_NET_ADMIN", f.Kernel.Whose)
	case f.Kernel.Ordinary:
		return says(Note, "this user has no CAP_NET_ADMIN: a weftd that is started by this user is one without "+
			"root").
			do("weftd --rootless --check says whether it can be, and docs/rootless.md how; for one of the whole " +
				"host, run weft doctor as root")
	}
	return says(Fault, "CAP_NET_ADMIN is missing: devices, addresses, routes and rules need it").
		about(f.Kernel.Whose).
		because("it does not run as root, or the unit or the container gives it fewer capabilities").
		do("run it as root; in a unit AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW, in a container --cap-add " +
			"NET_ADMIN")
}

func checkNetRaw(f *Facts) findings {
	switch {
	case f.Kernel.CapabilitiesErr != nil:
		return says(Unknown, "capabilities of %s: %v", f.Kernel.Whose, f.Kernel.CapabilitiesErr)
	case f.Settings.Rootless.On:
		return says(OK, "weftd is an ordinary user's, and uses path socket")
	case f.Kernel.NetRaw:
		return says(OK, "%s has CAP_NET_RAW", f.Kernel.Whose)
	case f.Kernel.Ordinary:
		return says(OK, "a weftd that is started by this user is one without root, and uses path socket")
	}
	return says(Warning, "CAP_NET_RAW is missing: path raw is not possible, and path auto takes the next best").
		about(f.Kernel.Whose).because("the unit or the container gives it fewer capabilities").
		do("in a unit AmbientCapabilities=CAP_NET_ADMIN CAP_NET_RAW, in a container --cap-add NET_RAW")
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
	if !on {
		return says(OK, "the overlay has no %s", family)
	}
	const cause = "Linux has it off by default, or a file of /etc/sysctl.d turns it off at each start"
	value, there := f.Kernel.Settings[all]
	switch {
	case !there:
		return says(Fault, "the kernel has no %s, and the network config enables it", family).
			do("remove it from the network config, or boot with %s", family)
	case value == "0":
		return says(Fault, "%s is 0: the kernel forwards nothing between pods and other hosts", key(all)).
			because(cause).do("sysctl -w %s=1, and a line in /etc/sysctl.d", key(all))
	}
	links := slices.Concat(f.overlayLinks(), f.podBridges())
	if f.Network.Facts().Direct { // what comes from peers comes by the underlay
		links = append(links, Link{Name: f.Links.Underlay.Name})
	}
	var out findings
	for _, l := range links {
		if name := fmt.Sprintf(each, l.Name); f.Kernel.Settings[name] == "0" {
			out = out.says(Fault, "%s is 0: nothing that comes in by %s is forwarded", key(name), l.Name).
				about(l.Name).because(cause).do("sysctl -w %s=1", key(name))
		}
	}
	return out.orOK("%s is %s", key(all), value)
}

// key is the name of a setting as sysctl takes it: a dot in a link's name, as in flannel.1, is a slash there.
func key(file string) string { return "net." + strings.NewReplacer("/", ".", ".", "/").Replace(file) }

// checkPodBridge looks at the link behind which pods are that have no port of weftd's.
func checkPodBridge(f *Facts) findings {
	bridges := f.podBridges()
	if len(bridges) == 0 {
		return f.bareBridges().orOK("no link of others has an address of this node's subnet")
	}
	var out findings
	for _, l := range bridges {
		if !l.Up {
			out = out.says(Fault, "the link is down: pods behind it reach nobody").about(l.Name).
				do("ip link set %s up", l.Name)
		}
	}
	return out.orOK("it is up")
}

// bareBridges finds bridges that have ports and no address, while no link has one of this node's subnet:
// packets to its own pods leave by the overlay again then.
func (f *Facts) bareBridges() (out findings) {
	own := f.Network.Own.V4
	if !own.IsValid() {
		return nil
	}
	for _, l := range f.Links.Links {
		port := func(p Link) bool { return p.Master == l.Index && p.Kind == "veth" }
		if l.Kind == "bridge" && len(l.Addrs) == 0 && slices.ContainsFunc(f.Links.Links, port) {
			gateway := netip.PrefixFrom(own.Masked().Addr().Next(), own.Bits())
			out = out.says(Fault, "it has ports and no address, and no link has one of this node's subnet %s: pods "+
				"behind it reach nobody", own.Masked()).about(l.Name).
				because("its address was removed, or the node's subnet is a new one").
				do("ip addr add %s dev %s, if its pods have addresses of %s; else make them anew", gateway, l.Name,
					own.Masked())
		}
	}
	return out
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
		addrs := slices.DeleteFunc(slices.Clone(l.Addrs), func(p netip.Prefix) bool {
			return p.Addr().IsLinkLocalUnicast()
		})
		second := len(addrs) > 0 && !slices.ContainsFunc(f.Network.Networks(), func(n netip.Prefix) bool {
			return slices.ContainsFunc(addrs, n.Overlaps)
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

func checkReversePath(f *Facts) findings {
	under := f.Links.Underlay.Name
	if under == "" {
		return says(Unknown, "no underlay is chosen")
	}
	var out findings
	if f.strict(under) {
		for _, r := range f.peers() {
			w, ok := f.Links.To[r.PublicIP]
			if !ok || w.Err != nil || w.Link == under {
				continue
			}
			out = out.says(Fault, "rp_filter is strict on %s, and this host's way to %s leads by %s: what the peer "+
				"sends here is dropped", under, r.PublicIP, w.Link).about(r.Called()).
				because("routes differ in the two directions").
				do("sysctl -w %s=2, or route %s by %s", rpFilter(under), r.PublicIP, under)
		}
	}
	if n := f.Kernel.ReversePathDrops; n > 0 && len(out) == 0 {
		return f.reversePath(n)
	}
	return out.orOK("it dropped nothing, and all known peers are reached by %s", under)
}

// reversePath is for packets that rp_filter dropped while the doctor looked. It drops what comes by another
// link than the one that leads to the sender.
func (f *Facts) reversePath(n uint64) findings {
	v := Warning
	silent := map[string]bool{} // links that lead to silent peers
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
	return says(v, "rp_filter dropped %d packets while this looked; it is strict on %s", n,
		strings.Join(links, ", ")).about(strings.Join(links, ", ")).
		because("packets come by another link than the one that leads to their sender").
		do("%s", strings.Join(commands, "; "))
}

// strict reports whether rp_filter is strict on a link.
func (f *Facts) strict(link string) bool {
	return max(number(f.Kernel.Settings["ipv4/conf/all/rp_filter"]),
		number(f.Kernel.Settings["ipv4/conf/"+link+"/rp_filter"])) == 1
}

func rpFilter(link string) string { return key("ipv4/conf/" + link + "/rp_filter") }

func number(text string) int {
	n, _ := strconv.Atoi(text) // a setting that is not there is off
	return n
}

// The number of connections that the kernel tracks, and the most that it does.
const (
	conntracked   = "netfilter/nf_conntrack_count"
	conntrackMost = "netfilter/nf_conntrack_max"
)

func checkConntrack(f *Facts) findings {
	have, most := number(f.Kernel.Settings[conntracked]), number(f.Kernel.Settings[conntrackMost])
	v := Warning
	switch {
	case most == 0:
		return says(OK, "no bound is known")
	case 10*have < 9*most:
		return says(OK, "%d of at most %d connections", have, most)
	case have >= most:
		v = Fault
	}
	return says(v, "%d of at most %d connections are tracked", have, most).
		because("in a full table the kernel forgets connections that nobody answered, and if there are none, it "+
			"drops packets of new ones").
		do("sysctl -w %s=%d", key(conntrackMost), 2*most)
}

func checkBridgeNetfilter(f *Facts) findings {
	if f.Network.EnableNFTables {
		return says(OK, "nftables is used, which does not need it")
	}
	v := Note
	if f.Settings.Kube.On {
		v = Warning
	}
	var out findings
	for _, x := range []struct {
		on   bool
		file string
	}{{f.Network.EnableIPv4, "bridge/bridge-nf-call-iptables"},
		{f.Network.EnableIPv6, "bridge/bridge-nf-call-ip6tables"}} {
		const means = "packets between pods on one bridge miss iptables, which matters where kube-proxy uses it"
		value, there := f.Kernel.Settings[x.file]
		switch {
		case !x.on:
		case !there:
			out = out.says(v, "%s does not exist: %s", key(x.file), means).
				because("the module br_netfilter is not loaded").do("modprobe br_netfilter")
		case value == "0":
			out = out.says(v, "%s is 0: %s", key(x.file), means).do("sysctl -w %s=1", key(x.file))
		}
	}
	return out.orOK("iptables sees them")
}
