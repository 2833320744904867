package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft/lease"
)

// What is to be done about a bridge within Network. Its address stays, since pods have it as their gateway.
const formerPods = "if it is the bridge of a subnet that this node had before: delete the pods on it, " +
	"which are made anew with an address of the subnet that the node has now; if it is another program's, as " +
	"Docker's: give that another network"

func checkOverlap(f *Facts) findings {
	var out findings
	covers := func(subject, what string, a netip.Addr) {
		if n, r, cut := f.cutOff(a); cut {
			out = out.says(Fault, "Network %s contains %s %s, which is reached via %s: the overlay's route would "+
				"take its place", n, what, a, r).about(subject).
				do("choose another Network that nobody uses, or add a more specific route to %s", a)
		}
	}
	for _, e := range f.Store.Endpoints {
		for _, a := range e.Addrs {
			covers(e.URL, "the store's", a)
		}
	}
	for _, p := range f.peers() {
		covers(p.Called(), "the peer's own address", p.PublicIP)
		covers(p.Called(), "the peer's own address", p.PublicIPv6)
	}
	for _, l := range f.Links.Links {
		if l.Alias == ownAlias || isFlannels(l.Name) {
			continue
		}
		for _, a := range l.Addrs {
			for _, n := range f.Network.Networks() {
				// A network of the host's that contains the overlay, or lies in it and is not a pods' bridge of our own
				// subnet.
				if a.Masked().Overlaps(n) && !f.ownSubnet(a.Masked()) && a.Bits() < a.Addr().BitLen() {
					remedy := "choose another Network that no host uses"
					if l.Kind == "bridge" && a.Bits() > n.Bits() {
						remedy = formerPods
					}
					out = out.says(Fault, "Network %s overlaps %s, in which this host has the address %s", n, a.Masked(),
						a.Addr()).about(l.Name).do("%s", remedy)
				}
			}
		}
	}
	return out.orOK("it contains none")
}

// isFlannels says that a link has one of flannel's names, which weft's have too.
func isFlannels(name string) bool { return strings.HasPrefix(name, "flannel") }

// ownSubnet says that p lies in this node's subnet, where a bridge of pods is.
func (f *Facts) ownSubnet(p netip.Prefix) bool {
	return contains(f.Network.Own.V4, p) || contains(f.Network.Own.V6, p)
}

// contains reports whether p lies in n.
func contains(n, p netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Contains(p.Addr()) }

// cutOff says that an overlay's route takes the place of the one to a, and by which network.
func (f *Facts) cutOff(a netip.Addr) (network netip.Prefix, via string, cut bool) {
	local := func(l Link) bool { return l.Alias != ownAlias && l.has(a) }
	if !a.IsValid() || slices.ContainsFunc(f.Links.Links, local) {
		return network, "", false
	}
	theirs := func(r Route) bool { return !f.overlays(r) && !r.Blocks }
	for _, n := range f.Network.Networks() {
		if !n.Contains(a) {
			continue
		}
		if r, ok := f.longest(a, theirs); ok && r.Dst.Bits() <= n.Bits() {
			return n, r.via(), true
		}
	}
	return network, "", false
}

// longest is the most specific route to a of those that count, with the least metric.
func (f *Facts) longest(a netip.Addr, counts func(Route) bool) (best Route, ok bool) {
	for _, r := range f.Links.Routes {
		if !counts(r) || !r.Dst.Contains(a) {
			continue
		}
		if !ok || cmp.Or(cmp.Compare(best.Dst.Bits(), r.Dst.Bits()), cmp.Compare(r.Metric, best.Metric)) < 0 {
			best, ok = r, true
		}
	}
	return best, ok
}

// overlays says that a route is weft's, or leads by a link of weft's.
func (f *Facts) overlays(r Route) bool {
	l, _ := f.Links.named(r.Link)
	return r.Protocol == ownProtocol || l.Alias == ownAlias
}

// These are the parts of the range, in percent, from which on a warning is due, and the part at which it is
// used up.
const rangeWarning, rangeFull = 80, 100

func checkLeft(f *Facts) findings {
	switch {
	case f.Settings.Kube.On:
		return says(OK, "the cluster gives out subnets")
	case !f.Network.known() || f.Network.RecordsFrom != etcdStore:
		return says(Unknown, "the store was not read")
	}
	var taken []lease.Subnets
	for _, r := range f.Network.Records {
		taken = append(taken, r.Subnets)
	}
	var out findings
	for _, u := range f.Network.Use(taken) {
		switch part := u.Percent(); {
		case part >= rangeFull:
			out = out.says(Fault, "all %d subnets of %s are taken: no other node can join", u.All, u.Network)
		case part >= rangeWarning:
			out = out.says(Warning, "%d of %d subnets of %s are taken", u.Taken, u.All, u.Network)
		default:
			continue
		}
		out.do("weft lease list shows who has them, nodes that are gone for a day; weft lease release SUBNET " +
			"gives one back that nobody needs; a wider Network, or a longer SubnetLen, needs every node to start " +
			"again")
	}
	return out.orOK("less than %d %% are taken", rangeWarning)
}

// peers are the records of other nodes.
func (f *Facts) peers() []lease.Record {
	return slices.DeleteFunc(slices.Clone(f.Network.Records), f.own)
}

// own says that a record is this node's.
func (f *Facts) own(r lease.Record) bool {
	own := f.Network.Own
	return own.V4.IsValid() && r.V4 == own.V4 || !own.V4.IsValid() && own.V6.IsValid() && r.V6 == own.V6
}

// usable says that a record is of this node's type, or that this node's own type is not known.
func (f *Facts) usable(r lease.Record) bool {
	i := slices.IndexFunc(f.Network.Records, f.own)
	return i < 0 || f.Network.Records[i].BackendType == r.BackendType
}

func checkDuplicates(f *Facts) findings {
	var out findings
	for _, n := range f.Links.Neighbours {
		if !n.Own || !n.Several() {
			continue
		}
		theirs := slices.IndexFunc(f.peers(), func(r lease.Record) bool { return r.PublicIP == n.At })
		link, _ := f.Links.named(n.Link)
		here := slices.IndexFunc(link.Addrs, func(p netip.Prefix) bool { return p.Addr() == n.At })
		if theirs >= 0 && here >= 0 && n.At != f.Links.Underlay.Addr4 && n.At != f.Links.Underlay.Ext4 {
			out = out.says(Fault, "this host has on %s the address %s of peer %s, which has it too: MAC address %s",
				n.Link, n.At, f.peers()[theirs].Called(), n.Answers[0]).about(n.At.String()).
				do("ip addr del %s dev %s, and stop what gave it", link.Addrs[here], n.Link)
		} else {
			out = out.says(Fault, "another host on %s has this host's address %s: MAC address %s", n.Link, n.At,
				n.Answers[0]).about(n.At.String()).
				do("on that host: ip -br addr | grep -wF %s, and take the address away", n.At)
		}
	}
	if a := f.Links.Underlay.Ext4; a.IsValid() {
		if n := f.Links.Neighbours[a]; !n.Own && n.At == a && n.Asked && len(n.Answers) == 0 {
			out = out.says(Fault, "this node publishes %s, which is no address of this host, and nobody on %s "+
				"answers ARP for it", a, n.Link).about(a.String()).because("--public-ip is %s", a).
				do("start weftd with --public-ip=%s", f.Links.Underlay.Addr4)
		}
	}
	at := map[netip.Addr][]string{}
	for _, r := range f.Network.Records {
		name := fmt.Sprintf("%s (%s)", r.Called(), r.Subnets)
		if f.own(r) {
			name = "this node, " + name
		}
		for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
			if a.IsValid() && !a.IsUnspecified() {
				at[a] = append(at[a], name)
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(at), netip.Addr.Compare) {
		if len(at[a]) > 1 {
			out = out.says(Fault, "%s publish the address %s: only one of them is reached",
				strings.Join(at[a], " and "), a).about(a.String()).
				do("give each its own --public-ip, also where a machine was cloned; weft lease release SUBNET deletes " +
					"a leftover")
		}
	}
	return out.orOK("all %d differ", len(f.Network.Records))
}

func checkIdentity(f *Facts) findings {
	id := f.Daemon.Status.NodeID
	switch l := f.Daemon.Status.Lease; {
	case l == nil:
		return says(Unknown, "there is no lease yet")
	case l.Detail != "":
		return says(Warning, "the lease: %s", l.Detail).do("weft status; weft lease list")
	}
	var same []string
	for _, r := range f.peers() {
		if r.Weft != nil && id != "" && r.Weft.Node == id {
			same = append(same, r.Subnets.String())
		}
	}
	if len(same) > 0 {
		return says(Fault, "another record, of %s, has this node's identity %s", strings.Join(same, ", "), id).
			do("if the machine was cloned, on the clone: remove --cache-dir's node file and give it a machine-id of " +
				"its own (systemd-machine-id-setup); else --node-id is the same on two")
	}
	return says(OK, "%s, and no other has it", id)
}
