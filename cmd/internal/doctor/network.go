package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft/lease"
	"weft/lease/keeper"
	"weft/routing"
)

func checkConfig(f *Facts) findings {
	switch n := f.Network; {
	case n.From == "":
		return says(Unknown, "it is in the store, which was not read")
	case n.Err != nil:
		var out findings
		for _, fault := range joined(n.Err) {
			out = out.says(Fault, "%s", oneLine(fault)).about(n.From).do("%s", f.mend(fault))
			switch prefix := f.Settings.Store.Prefix; {
			case !f.Store.Asked || f.Store.Err != nil || f.Store.Snapshot.Config != nil:
			case n.LastStore != "":
				out.because("--etcd-prefix is %s, and weftd's last run here had %s", prefix, n.LastStore).
					do("set --etcd-prefix %s and restart weftd", n.LastStore)
			default:
				out.because("nobody wrote it, somebody deleted it, or --etcd-prefix %s is not the other nodes': "+
					"etcdctl get --prefix --keys-only / | grep /config shows where one is", prefix)
			}
		}
		return out
	}
	return says(OK, "%s, backend %s, from %s",
		lease.Subnets{V4: f.Network.NetworkConfig.Network, V6: f.Network.IPv6Network}, f.Network.BackendType,
		f.Network.From)
}

func checkKeys(f *Facts) findings {
	if len(f.Network.Raw) == 0 {
		return says(Unknown, "there is no network config to look at")
	}
	var out findings
	for _, u := range f.Network.Unknown {
		out = out.says(Warning, "%s", u).about(f.Network.From).because("it is misspelt, or another program's").
			do("correct it there: weft goes on as if it were absent")
	}
	return out.orOK("all are known")
}

func checkRunning(f *Facts) findings {
	if f.Daemon.answers() {
		c := f.Daemon.Status.Config
		var out findings
		for _, fault := range c.Faults {
			if f.saidOfConfig(fault) {
				continue
			}
			out = out.says(Fault, "the network config is not the one in use, and cannot be: %s", fault).
				do("%s", f.mendRunning(fault))
		}
		if len(c.Changes) > 0 {
			out = out.says(Warning, "a restart of weftd would change: %s%s", strings.Join(c.Changes, "; "),
				f.collides()).
				because("the network config was changed since weftd started; nodes that started since then use the "+
					"new one").do("restart weftd on every node; or write the old one back: %s", f.put([]byte(c.InUse)))
		}
		if c.Differs && len(out) == 0 && f.Network.Err == nil {
			out = out.says(Warning, "the network config is not the one in use").do("weft status")
		}
		if f.Network.Err != nil {
			return out.orOK("weftd goes on with the last good one")
		}
		return out.orOK("the one in use")
	}
	last := f.Network.Last
	switch {
	case !f.Network.HasLast():
		return says(Unknown, "weftd does not answer, and left no last good network config")
	case !f.Network.known():
		return says(Unknown, "there is nothing to compare with the last good one, %s",
			lease.Subnets{V4: last.Network, V6: last.IPv6Network})
	}
	var out findings
	for _, change := range Changes(last, f.Network.Network) {
		out = out.says(Note, "a start of weftd would change since its last run: %s", change)
	}
	return out.orOK("the one of the last run")
}

// saidOfConfig says that check network-config has what weftd says of the network config, too.
func (f *Facts) saidOfConfig(fault string) bool {
	return slices.ContainsFunc(joined(f.Network.Err), func(err error) bool {
		return fault == strings.TrimSpace(err.Error()) || fault == keeper.ErrNoConfig.Error()
	})
}

// collides says which address of this host the stored network config, which is not in use, contains.
func (f *Facts) collides() string {
	stored, err := routing.Parse(f.Network.Raw)
	if err != nil {
		return ""
	}
	for _, n := range stored.Networks() {
		for _, a := range f.Links.Underlay.Local() {
			if n.Contains(a) {
				return fmt.Sprintf("; and %s contains this host's own address %s: no node could start with it", n, a)
			}
		}
	}
	return ""
}

// Changes says in what two configurations differ: in what peers and pods see, or else in what only this node
// does.
func Changes(before, after routing.Network) (out []string) {
	diff := before.Diff(after)
	for _, c := range diff {
		if c.Seen || !diff[0].Seen {
			out = append(out, c.String())
		}
	}
	return out
}

// What a bridge within Network is, and what is to be done. Its address stays, since pods have it as their
// gateway.
const (
	formerBridge = "it is the bridge of a subnet that this node had before, or another program's, as Docker's"
	formerPods   = "delete the pods on it, which are made anew with an address of the subnet that the node " +
		"has now; or give that program another network"
)

func checkOverlap(f *Facts) findings {
	var out findings
	const remedy = "choose another Network that nobody uses, or add a more specific route"
	for _, e := range f.Store.Endpoints {
		for _, a := range e.Addrs {
			if n, r, cut := f.cutOff(a); cut {
				out = out.says(Fault, "Network %s contains the store's %s, which is reached via %s: the overlay's "+
					"route would take its place", n, a, r).about(e.URL).do("%s to %s", remedy, a)
			}
		}
	}
	for _, p := range f.peers() {
		for _, a := range []netip.Addr{p.PublicIP, p.PublicIPv6} {
			if n, r, cut := f.cutOff(a); cut {
				out = out.says(Fault, "Network %s contains the peer's own address %s, which is reached via %s: the "+
					"overlay's route would take its place", n, a, r).about(p.Called()).do("%s to %s", remedy, a)
			}
		}
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
					out = out.says(Fault, "Network %s overlaps %s, in which this host has the address %s", n, a.Masked(),
						a.Addr()).about(l.Name)
					if l.Kind == "bridge" && a.Bits() > n.Bits() {
						out.because(formerBridge).do(formerPods)
					} else {
						out.because("one network was given out twice").do("choose another Network that no host uses")
					}
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

// cutOff says that an overlay's route takes the place of the one to a, and by which network.
func (f *Facts) cutOff(a netip.Addr) (network netip.Prefix, via string, cut bool) {
	if !a.IsValid() || f.isLocal(a) {
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

func (f *Facts) isLocal(a netip.Addr) bool {
	return slices.ContainsFunc(f.Links.Links, func(l Link) bool {
		return l.Alias != ownAlias && slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool {
			return p.Addr() == a
		})
	})
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
		const remedy = "weft lease list shows who has them, weft lease release SUBNET gives one back that nobody " +
			"needs; a wider Network, or a longer SubnetLen, needs every node to start again"
		switch part := u.Percent(); {
		case part >= rangeFull:
			out = out.says(Fault, "all %d subnets of %s are taken: no other node can join", u.All, u.Network).
				because("nodes that are gone keep theirs for a day, or the range is small").do(remedy)
		case part >= rangeWarning:
			out = out.says(Warning, "%d of %d subnets of %s are taken", u.Taken, u.All, u.Network).do(remedy)
		}
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
	return own != (lease.Subnets{}) && (own.V4.IsValid() && r.V4 == own.V4 || !own.V4.IsValid() &&
		r.V6 == own.V6)
}

// usable says that a record is of this node's type, or that this node's own type is not known.
func (f *Facts) usable(r lease.Record) bool {
	i := slices.IndexFunc(f.Network.Records, f.own)
	return i < 0 || f.Network.Records[i].BackendType == r.BackendType
}

func checkDuplicates(f *Facts) findings {
	at := map[netip.Addr][]lease.Record{}
	for _, r := range f.Network.Records {
		for _, a := range []netip.Addr{r.PublicIP, r.PublicIPv6} {
			if a.IsValid() && !a.IsUnspecified() {
				at[a] = append(at[a], r)
			}
		}
	}
	var out findings
	for _, n := range f.Links.Neighbours {
		if n.Own && n.Several() {
			out = out.says(Fault, "another host on %s has this host's address %s: MAC address %s", n.Link, n.At,
				n.Answers[0]).about(n.At.String()).because("a machine was cloned, or the address was given twice").
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
	for _, a := range slices.SortedFunc(maps.Keys(at), netip.Addr.Compare) {
		l := at[a]
		if len(l) < 2 {
			continue
		}
		var who []string
		for _, r := range l {
			who = append(who, r.Called()+" ("+r.Subnets.String()+")")
		}
		out = out.says(Fault, "%s publish the address %s: only one of them is reached", strings.Join(who, " and "),
			a).about(a.String()).
			because("a machine was cloned, --public-ip is the same on two, or one of the records is a leftover").
			do("give each its own --public-ip; weft lease release SUBNET deletes a leftover")
		if slices.ContainsFunc(l, f.own) {
			out.last().Found += "; this node is among them"
		}
	}
	return out.orOK("all %d differ", len(f.Network.Records))
}

func checkIdentity(f *Facts) findings {
	switch d := f.Daemon; {
	case d.Status.Lease == nil:
		return says(Unknown, "there is no lease yet")
	case d.Status.Lease.Detail != "":
		return says(Warning, "the lease: %s", d.Status.Lease.Detail).do("weft status; weft lease list")
	}
	var same []string
	for _, r := range f.peers() {
		if id := f.Daemon.Status.NodeID; r.Weft != nil && id != "" && r.Weft.Node == id {
			same = append(same, r.Subnets.String())
		}
	}
	if len(same) > 0 {
		return says(Fault, "another record, of %s, has this node's identity %s", strings.Join(same, ", "),
			f.Daemon.Status.NodeID).
			because("a machine was cloned with its /etc/machine-id, or --node-id is the same on two").
			do("on the clone: remove --cache-dir's node file and give it a machine-id of its own " +
				"(systemd-machine-id-setup), or --node-id")
	}
	return says(OK, "%s, and no other has it", f.Daemon.Status.NodeID)
}
