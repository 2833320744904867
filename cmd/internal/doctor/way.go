package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft/cmd/internal/diagnose"
	"weft/lease"
)

func checkInterface(f *Facts) findings {
	l := f.Links
	switch {
	case l.UnderlayErr != nil:
		return says(Fault, "no interface can carry the overlay: %s", oneLine(l.UnderlayErr)).
			because("--iface names none that is there, is up, and has an address of each family").
			do("ip -br addr; then --iface NAME or --public-ip ADDRESS")
	case l.Underlay.Name == "":
		return says(Unknown, "the network config is not known")
	}
	var out findings
	if x, there := l.named(l.Underlay.Name); !there {
		out = out.says(Fault, "the interface is gone").about(l.Underlay.Name).do("ip -br link")
	} else if !x.Up || !x.Carrier {
		out = out.says(Fault, "the interface is %s",
			map[bool]string{true: "up and has no carrier", false: "down"}[x.Up]).about(l.Underlay.Name).
			because("a cable, a switch's port, or somebody turned it off").
			do("ip link set %s up; ip -br link", l.Underlay.Name)
	}
	moved := ""
	for _, x := range l.Links {
		if x.Name != l.Underlay.Name && x.has(l.Underlay.Addr4) {
			moved = x.Name
		}
	}
	elsewhere, by := map[string][]string{}, 0
	for _, p := range f.peers() {
		if w, ok := l.To[p.PublicIP]; ok && w.Err == nil {
			if w.Link == l.Underlay.Name || w.Link == "lo" {
				by++
			} else {
				elsewhere[w.Link] = append(elsewhere[w.Link], p.Called())
			}
		}
	}
	for _, link := range slices.Sorted(maps.Keys(elsewhere)) {
		v := Warning
		if by == 0 {
			v = Fault
		}
		out = out.says(v, "%s reached by %s, and the overlay is bound to %s (%s)", peersAre(elsewhere[link]), link,
			l.Underlay.Name, addrsOf(l.Underlay.Local())).about(link).
			because("--iface, or the default choice, is another network's than the peers'").
			do("--iface %s, if the peers are in its network; ip route get shows the way to one", link)
		if link == moved {
			out.last().Observed = true
			out.because("the address %s is on %s now", l.Underlay.Addr4, link).
				do("restart weftd with --iface %s", link)
		}
	}
	return out.orOK("%s, %s", l.Underlay.Name, addrsOf(l.Underlay.Local()))
}

// peersAre names a few of them.
func peersAre(names []string) string {
	slices.Sort(names)
	const most = 3
	switch {
	case len(names) == 1:
		return "peer " + names[0] + " is"
	case len(names) > most:
		return fmt.Sprintf("%d peers, %s and others, are", len(names), strings.Join(names[:most], ", "))
	}
	return "peers " + strings.Join(names, ", ") + " are"
}

func addrsOf(l []netip.Addr) string {
	var out []string
	for _, a := range l {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func checkMTU(f *Facts) findings {
	n, u := f.Network, f.Links.Underlay
	switch {
	case n.MTUErr != nil:
		return says(Fault, "%s", oneLine(n.MTUErr)).because("the underlay's MTU, or Backend.MTU, is too small").
			do("ip link show %s; ip link set %s mtu 1500", u.Name, u.Name)
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
				because("the underlay's MTU was lowered, or somebody raised the overlay's").
				do("ip link set %s mtu %d; weftd does it by itself while it runs", l.Name, n.MTU)
		}
	}
	for _, r := range f.peers() {
		if w, ok := f.Links.To[r.PublicIP]; ok && w.MTU > 0 && w.MTU < u.MTU {
			out = out.says(Note, "the kernel knows a path MTU of %d to %s, less than the %d of %s", w.MTU, r.PublicIP,
				u.MTU, u.Name).about(r.Called()).because("a link on the way is smaller").
				do("Backend.MTU %d for all nodes avoids fragments and lost packets; ip route get %s", w.MTU, r.PublicIP)
		}
	}
	for _, r := range f.peers() {
		if r.Weft != nil && f.usable(r) && r.Weft.MTU > 0 && r.Weft.MTU < n.MTU {
			out = out.says(Note, "the peer's overlay carries %d bytes, this node's %d: larger packets are answered "+
				"with packet-too-big", r.Weft.MTU, n.MTU).about(r.Called()).
				because("not the same on both is the underlay's MTU, or the Backend.MTU with which weftd started").
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
		who, stop := "a process that is not visible from here, or a device of the kernel's", "stop it"
		if h.PID != 0 {
			who, stop = fmt.Sprintf("%s (pid %d)", h.Name, h.PID), fmt.Sprintf("kill %d", h.PID)
		}
		if f.Start && h.Name == "weftd" {
			out = out.says(Note, "UDP port %d is that of the weftd that runs here (pid %d)", h.At.Port(), h.PID).
				do("weft upgrade puts another one in its place")
			continue
		}
		v := Fault
		if f.Start {
			v = Warning // it waits until the port is free
		}
		out = out.says(v, "UDP port %d is taken, at %s, by %s", h.At.Port(), h.At, who).
			because("a flanneld or another weftd runs here, or a program that has the port by chance").
			do("ss -lunp 'sport = :%d' shows it, %s ends it; or give the overlay another Backend.Port on all nodes",
				h.At.Port(), stop)
	}
	if p.Device != "" {
		out = out.says(Warning, "the kernel's vxlan device %s has UDP port %d too", p.Device, facts.Port).
			about(p.Device).because("another overlay runs on this host").
			do("ip -d link show %s; give one of them another port", p.Device)
	}
	if facts.Port6 != 0 {
		return out.orOK("UDP ports %d and %d are weft's, or free", facts.Port, facts.Port6)
	}
	return out.orOK("UDP port %d is weft's, or free", facts.Port)
}

// ordinary says that a table is one of those in which weft's routes are, or that every packet asks first.
func ordinary(table int) bool { return table == 255 || table == 254 || table == 253 }

func checkRules(f *Facts) findings {
	var out findings
	for _, r := range f.Links.Rules {
		if ordinary(r.Table) || r.Priority >= 32766 {
			continue
		}
		if r.To.IsValid() && !slices.ContainsFunc(f.Network.Networks(), r.To.Overlaps) {
			continue
		}
		v, found := Note, "may send packets for the overlay to table %d, before the main table is asked"
		if r.To.IsValid() && !r.Narrow {
			v, found = Warning, "sends packets for the overlay to table %d, before the main table is asked"
		}
		out = out.says(v, found, r.Table).about(r.Text).because("a VPN, another network plugin, or policy routing").
			do("ip rule; ip route show table %d: it should have no route to the overlay's networks", r.Table)
	}
	return out.orOK("none")
}

func checkShadows(f *Facts) findings {
	var out findings
	for _, s := range f.shadows() {
		link, addr := f.connected(s.route)
		switch nobody := s.peer.Subnets == (lease.Subnets{}); {
		case nobody && addr.IsValid():
			continue // check overlap has it
		case nobody:
			out = out.says(Warning, "the route %s via %s lies within Network, and is not weft's: a node that gets "+
				"that subnet is not reached", s.route.Dst, s.route.via()).
				because("somebody, a VPN or another network plugin, added it")
		default:
			out = out.says(Fault, "the route %s via %s takes packets for peer %s (%s) out of the overlay", s.route.Dst,
				s.route.via(), s.peer.Called(), s.peer.Subnets).
				because("somebody, a VPN or another network plugin, added a route within Network")
		}
		out = out.about(s.route.Dst.String())
		switch {
		case !addr.IsValid():
			out.do("ip route del %s", s.route)
		case link.Kind == "bridge":
			out.because(formerBridge).do(formerPods)
		default:
			out.do("ip addr del %s dev %s, and stop what gave it; the route goes with the address", addr, link.Name)
		}
	}
	return out.orOK("none")
}

// via is where the route leads, in words.
func (r Route) via() string {
	switch {
	case r.Blocks:
		return "nowhere"
	case r.Gateway.IsValid():
		return r.Gateway.String() + " on " + r.Link
	}
	return r.Link
}

// String is the route as ip(8) takes it.
func (r Route) String() string {
	s := r.Dst.String()
	if r.Gateway.IsValid() {
		s += " via " + r.Gateway.String()
	}
	if r.Link != "" {
		s += " dev " + r.Link
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" metric %d", r.Metric)
	}
	return s
}

// connected returns the link and the address by which the kernel made a route; the zero Prefix if it is
// another.
func (f *Facts) connected(r Route) (Link, netip.Prefix) {
	for _, l := range f.Links.Links {
		for _, a := range l.Addrs {
			if l.Name == r.Link && !r.Gateway.IsValid() && a.Masked() == r.Dst {
				return l, a
			}
		}
	}
	return Link{}, netip.Prefix{}
}

// shadow is a foreign route that takes packets for a peer; peer is zero if it takes nobody's now.
type shadow struct {
	route Route
	peer  lease.Record
}

func (f *Facts) shadows() (out []shadow) {
	for _, r := range f.Links.Routes {
		within := slices.ContainsFunc(f.Network.Networks(), func(n netip.Prefix) bool { return contains(n, r.Dst) })
		if !within || f.overlays(r) || f.ownSubnet(r.Dst) || isFlannels(r.Link) {
			continue
		}
		nobody := true
		for _, p := range f.peers() {
			if !p.V4.Overlaps(r.Dst) && !p.V6.Overlaps(r.Dst) {
				continue
			}
			nobody = false
			// host-gw and direct routes have the peer's subnet, and lead to the peer: ours to make.
			if !isOf(r.Gateway, p) {
				out = append(out, shadow{r, p})
			}
		}
		if nobody {
			out = append(out, shadow{route: r})
		}
	}
	return out
}

// contains reports whether p lies in n.
func contains(n, p netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Contains(p.Addr()) }

// isOf reports whether a is an address of the peer's own.
func isOf(a netip.Addr, p lease.Record) bool {
	return a.IsValid() && (a == p.PublicIP || a == p.PublicIPv6)
}

func checkPeerRoutes(f *Facts) findings {
	switch {
	case len(f.overlayLinks()) == 0 && f.userspaceDataPlane():
		return says(Unknown, "there is no device of the overlay: weftd has not run here yet, or cleaned up")
	case f.Network.Facts().Alone:
		return says(OK, "backend %s has no peers", f.Network.BackendType)
	}
	shadowed := map[string]bool{}
	for _, s := range f.shadows() {
		shadowed[s.peer.Called()] = true
	}
	type fault struct{ found, cause string }
	var faults []fault
	lost := map[fault][]lease.Record{}
	good := 0
	for _, p := range f.peers() {
		w, asked := f.Links.To[inside(p)]
		if !asked {
			continue
		}
		x := fault{"packets to %s leave by " + w.Link + ", and not by the overlay", f.unrouted()}
		switch why := f.skipped(p); {
		case why != "":
			x = fault{"weftd does not use it as the way to %s", "weftd makes no route: " + why}
		case w.Err != nil:
			x.found = "there is no route to %s"
		case f.intoOverlay(w, p):
			good++
			continue
		case shadowed[p.Called()]:
			continue
		}
		if lost[x] == nil {
			faults = append(faults, x)
		}
		lost[x] = append(lost[x], p)
	}
	var out findings
	for _, x := range faults {
		var names, subnets []string
		for _, p := range lost[x] {
			names, subnets = append(names, p.Called()), append(subnets, p.Subnets.String())
		}
		out = out.says(Fault, x.found, firstOf(subnets)).about(firstOf(names)).because("%s", x.cause).
			do("ip route get %s; weft peers; weft status shows refused records", inside(lost[x][0]))
		if f.skipped(lost[x][0]) != "" {
			out.last().Observed = true
			out.do("%s", f.used(lost[x][0], firstOf(names)))
		}
	}
	return out.orOK("to %d peers", good)
}

// unrouted says why packets for a peer do not go into the overlay, as far as weftd says.
func (f *Facts) unrouted() string {
	switch {
	case !f.Daemon.answers():
		return "weftd does not run, or somebody deleted the route"
	case !f.Daemon.Status.Ready:
		return "weftd is not ready, for the reason that check daemon has"
	}
	return "its record is refused here, or a rule or route leads elsewhere"
}

// intoOverlay says that a packet that takes w goes to p by the overlay, or as a direct route would. Where a
// controller makes the routes, the network between the hosts has them.
func (f *Facts) intoOverlay(w RouteLookup, p lease.Record) bool {
	l, _ := f.Links.named(w.Link)
	return isFlannels(w.Link) || l.Alias == ownAlias || isOf(w.Gateway, p) ||
		f.Network.Facts().Controller && w.Link == f.Links.Underlay.Name
}

// inside is an address in a node's subnet that a pod could have.
func inside(r lease.Record) netip.Addr {
	if r.V4.IsValid() {
		return r.V4.Masked().Addr().Next()
	}
	return r.V6.Masked().Addr().Next()
}

// unresolved says what is open if the kernel asked a link for an address in vain.
func (l findings) unresolved(host, link string, at netip.Addr, n diagnose.Neighbour) findings {
	said := diagnose.Said{Kind: diagnose.KindHost, Text: "nobody on the link has the address"}
	return l.follows(diagnose.Of(diagnose.Path{Peer: host, Link: link, Under: at, Neighbour: n},
		diagnose.Fact{Layer: diagnose.Underlay, State: diagnose.Unsent, To: at, Said: &said}))
}

func checkPeerWays(f *Facts) findings {
	var out findings
	var none []lease.Record
	var why error
	good := 0
	for _, p := range f.peers() {
		w, asked := f.Links.To[p.PublicIP]
		next := f.Links.nextHop(p.PublicIP)
		near := f.Links.Neighbours[p.PublicIP]
		switch link, silent := f.Links.Silent[next]; {
		case !asked:
		case near.Misled(), near.Several():
			out = out.says(Fault, "packets to its address %s go to another host, or to one of several", p.PublicIP).
				about(p.Called()).unresolved(p.Called(), near.Link, p.PublicIP, near)
		case silent && len(near.Answers) > 0: // an old entry: it answers now
			good++
		case w.Err != nil:
			none = append(none, p)
			why = w.Err
		case silent && next == p.PublicIP:
			out = out.says(Fault, "its address %s does not answer on %s (neighbour FAILED)", p.PublicIP, link).
				about(p.Called()).unresolved(p.Called(), link, p.PublicIP, near)
		case silent:
			out = out.says(Fault, "the gateway %s on the way to its address %s does not answer on %s (neighbour "+
				"FAILED)", next, p.PublicIP, link).about(p.Called()).
				unresolved("gateway "+next.String(), link, next, near)
		default:
			good++
		}
	}
	if len(none) == 0 {
		return out.orOK("there is one to %d peers", good)
	}
	at, under := none[0].PublicIP, f.Links.Underlay.Name
	cause, remedy := "a route is missing", "ip route get "+at.String()
	if l, ok := f.Links.named(under); ok {
		cause += fmt.Sprintf(", or a netmask is wrong: %s has %v", under, l.Addrs)
		remedy = "ip addr show " + under + "; " + remedy
	}
	if r, ok := f.longest(at, func(r Route) bool { return r.Blocks }); ok {
		cause, remedy = "the route "+r.Dst.String()+" blocks it", "ip route del "+r.Dst.String()
	}
	if l, ok := f.Links.named(under); ok && !l.Up {
		cause = "the interface " + under + " is down, and its routes are gone with it"
		remedy = "ip link set " + under + " up"
	}
	if len(none) == 1 {
		out = out.says(Fault, "there is no way to its address %s: %v", at, why).about(none[0].Called())
	} else {
		var names []string
		for _, p := range none {
			names = append(names, p.Called())
		}
		out = out.says(Fault, "%s without a way to their own addresses, such as %s: %v", peersAre(names), at, why)
	}
	return out.because("%s", cause).do("%s", remedy)
}
