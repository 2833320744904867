package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

func checkInterface(f *Facts) findings {
	l, under := f.Links, f.Links.Underlay
	switch {
	case l.UnderlayErr != nil:
		return says(Fault, "no interface can carry the overlay: %s", oneLine(l.UnderlayErr)).
			do("ip -br addr; then --iface NAME or --public-ip ADDRESS, of one that is up and has an address of each " +
				"family")
	case under.Name == "":
		return says(Unknown, "the network config is not known")
	}
	var out findings
	if x, there := l.named(under.Name); !there {
		out = out.says(Fault, "the interface is gone").about(under.Name).do("ip -br link")
	} else if !x.Up || !x.Carrier {
		out = out.says(Fault, "the interface is %s",
			map[bool]string{true: "up and has no carrier", false: "down"}[x.Up]).about(under.Name).
			do("ip link set %s up; ip -br link; ethtool %s", under.Name, under.Name)
	}
	elsewhere, by := map[string][]string{}, 0
	for _, p := range f.peers() {
		switch w, ok := l.To[p.PublicIP]; {
		case !ok, w.Err != nil:
		case w.Link == under.Name, w.Link == "lo":
			by++
		default:
			elsewhere[w.Link] = append(elsewhere[w.Link], p.Called())
		}
	}
	for _, link := range slices.Sorted(maps.Keys(elsewhere)) {
		v := Warning
		if by == 0 {
			v = Fault
		}
		out = out.says(v, "%s reached by %s, and the overlay is bound to %s (%s)", are(elsewhere[link]), link,
			under.Name, addrsOf(under.Local())).about(link).
			do("--iface %s, if the peers are in its network; ip route get shows the way to one", link)
		if x, _ := l.named(link); x.has(under.Addr4) && link != under.Name {
			out.because("the address %s is on %s now", under.Addr4, link).do("restart weftd with --iface %s", link)
		}
	}
	return out.orOK("%s, %s", under.Name, addrsOf(under.Local()))
}

// mostNamed bounds how many peers one finding names.
const mostNamed = 5

// firstOf lists the first few of several.
func firstOf(all []string) string {
	out := strings.Join(all[:min(len(all), mostNamed)], ", ")
	if more := len(all) - mostNamed; more > 0 {
		out += fmt.Sprintf(", and %d others", more)
	}
	return out
}

// are says of which peers something is said next.
func are(peers []string) string {
	if len(peers) == 1 {
		return "peer " + peers[0] + " is"
	}
	return "peers " + firstOf(peers) + " are"
}

func addrsOf(l []netip.Addr) string { return strings.Trim(fmt.Sprint(l), "[]") }

func checkMTU(f *Facts) findings {
	n, u := f.Network, f.Links.Underlay
	switch {
	case n.MTUErr != nil:
		return says(Fault, "%s", oneLine(n.MTUErr)).
			do("ip link show %s; ip link set %s mtu 1500, or another Backend.MTU", u.Name, u.Name)
	case n.MTU == 0:
		return says(Unknown, "the underlay or the network config is not known")
	}
	var out findings
	links := f.overlayLinks()
	if f.Start {
		links = nil // of a weftd whose network another configuration may have been
	}
	for _, l := range links {
		most := n.MTU
		if n.EnableIPv4 && n.EnableIPv6 && !strings.HasPrefix(l.Name, "flannel-v6") {
			most += 20 // of two devices, the one whose outer header is IPv4's carries more
		}
		if isFlannels(l.Name) && l.MTU > most {
			out = out.says(Fault, "%s has MTU %d, and %s carries only %d in the overlay: larger packets are lost "+
				"or cut", l.Name, l.MTU, u.Name, n.MTU).about(l.Name).
				do("ip link set %s mtu %d; weftd does it by itself while it runs", l.Name, n.MTU)
		}
	}
	for _, r := range f.peers() {
		if w := f.Links.To[r.PublicIP]; w.MTU > 0 && w.MTU < u.MTU {
			out = out.says(Note, "the kernel knows a path MTU of %d to %s, less than the %d of %s", w.MTU, r.PublicIP,
				u.MTU, u.Name).about(r.Called()).
				do("Backend.MTU %d for all nodes avoids fragments and lost packets; ip route get %s", w.MTU, r.PublicIP)
		}
		if r.Weft != nil && f.usable(r) && r.Weft.MTU > 0 && r.Weft.MTU < n.MTU {
			out = out.says(Note, "the peer's overlay carries %d bytes, this node's %d: larger packets are answered "+
				"with packet-too-big", r.Weft.MTU, n.MTU).about(r.Called()).
				do("ip link, there and here; weft status, there and here; Backend.MTU sets one for all")
		}
	}
	return out.orOK("%d on %s, %d inside the overlay", u.MTU, u.Name, n.MTU)
}

func checkPort(f *Facts) findings {
	p, facts := f.Port, f.Network.Facts()
	switch {
	case facts.Port == 0:
		return says(OK, "backend %s has none", f.Network.BackendType)
	case p.Err != nil:
		return says(Unknown, "%v", p.Err)
	}
	var out findings
	for _, h := range p.Holders {
		if f.Start && h.Name == "weftd" {
			out = out.says(Note, "UDP port %d is that of the weftd that runs here (pid %d)", h.At.Port(), h.PID).
				do("weft upgrade puts another one in its place")
			continue
		}
		who, stop, v := "a process that is not visible from here, or a device of the kernel's", "", Fault
		if h.PID != 0 {
			who, stop = fmt.Sprintf("%s (pid %d)", h.Name, h.PID), fmt.Sprintf(", kill %d ends it", h.PID)
		}
		if f.Start {
			v = Warning // it waits until the port is free
		}
		out = out.says(v, "UDP port %d is taken, at %s, by %s", h.At.Port(), h.At, who).
			do("ss -lunp 'sport = :%d' shows it%s; or give the overlay another Backend.Port on all nodes",
				h.At.Port(), stop)
	}
	if p.Device != "" {
		out = out.says(Warning, "the kernel's vxlan device %s has UDP port %d too", p.Device, facts.Port).
			about(p.Device).do("ip -d link show %s; give one of them another port", p.Device)
	}
	return out.orOK("UDP port %d is weft's, or free", facts.Port)
}
