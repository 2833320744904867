package routing

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"

	"weft/encap"
	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel"
)

// typeIPIP is flannel's ipip: inner packets are the payload of IPv4 packets (RFC 2003). The kernel tunnels,
// or this program does where the kernel cannot.
const typeIPIP = "ipip"

func ipipType() Type {
	return Type{
		Name: typeIPIP, Settings: func(lease.NetworkConfig, func(string) bool) settings { return new(ipip) },
		Device: isIPIP, Lasting: true,
	}
}

// isIPIP reports whether d is the kernel's device of flannel's name.
func isIPIP(d kernel.Device) bool { return d.Kind == kernel.KindIPIP && d.Name == kernel.IPIPName }

// ipip has the kernel tunnel packets by a device of flannel's name.
type ipip struct {
	// MTU is the largest outer packet, in bytes; 0 for that of the underlay link.
	MTU int `range:"576..65535"`
	// DirectRouting has peers on the underlay's own link reached by plain routes.
	DirectRouting bool
	// Userspace says whether the data plane carries the packets: userAuto, userAlways or userNever.
	Userspace string `words:"auto always never"`
	senders
}

// Facts implements settings.
func (i *ipip) Facts() Facts {
	f := Facts{
		Carrier: CarrierEither, OnlyIPv4: "ipip carries IPv4 in IPv4, as flannel's does",
		Guard: hostrules.Guard{Protocol: unix.IPPROTO_IPIP, Peers: i.check() != tunnel.CheckOff},
		Privilege: "it takes a raw socket on the underlay, and so CAP_NET_RAW there, which an ordinary user does " +
			"not have: use udp, vxlan or wireguard",
		Feature: &Feature{Name: "ipip", Probe: kernel.ProbeIPIPAside, Missing: kernel.ErrNoIPIP},
	}
	return f.carriedAs(i.Userspace, "carry the packets")
}

// open implements opener.
func (i *ipip) open(_ context.Context, c BackendConfig) (backendType, driver, error) {
	have, none := c.Kernel.Tunnel(kernel.IPIPName)
	there := none == nil && have.Kind == kernel.KindIPIP
	user, why, err := inUserSpace(c, i.Userspace, c.Kernel.ProbeIPIP, kernel.ErrNoIPIP, there)
	switch {
	case err != nil:
		return nil, nil, err
	case !user:
		return i, nil, nil
	case c.Unprivileged:
		return nil, nil, errors.New(i.Facts().Privilege)
	}
	if why != "" {
		c.Logger.Warn("ipip is carried in user space", "cause", why)
	}
	return i.inUserSpace(c.Node, why), nil, nil
}

func (i *ipip) inUserSpace(_, why string) backendType { return userIPIP{i, why} }

func (i *ipip) trait() trait {
	return trait{record: typeIPIP, path: PathKernel, asksHops: i.DirectRouting, viaPublic: true}
}

// publish is nothing: a peer is known by its address alone.
func (*ipip) publish() (data, v6data json.RawMessage) { return nil, nil }

func (i *ipip) sizes(u underlay.Link) (mtus, error) {
	outer := outerMTU(u.MTU, i.MTU)
	inner, least := encap.InnerMTU(encap.FormatIPIP, outer, false), minMTU4-encap.FormatIPIP.Overhead(false)
	if err := checkMTU(inner, least, outer); err != nil {
		return mtus{outer, inner}, err
	}
	if !u.Addr4.IsValid() {
		return mtus{outer, inner}, errors.New("the underlay has no IPv4 address, and ipip has no other: give the " +
			"link one, or use another type")
	}
	return mtus{outer, inner}, nil
}

// want implements backendType.
func (i *ipip) want(s situation) desired {
	var d desired
	if own := s.set.Own.V4; own.IsValid() && s.under.Addr4.IsValid() {
		base := own.Masked().Addr()
		d.Tunnels = []kernel.Tunnel{{
			Name: kernel.IPIPName, Kind: kernel.KindIPIP, Alias: kernel.Alias, MTU: s.mtu, Up: true,
			Local: s.under.Addr4, Loose: true,
		}}
		d.Addrs = []kernel.Addr{{Link: kernel.IPIPName, Prefix: netip.PrefixFrom(base, base.BitLen())}}
	}
	for _, w := range i.ways(s) {
		most := routeMTU(*w.r, false, s.mtu)
		if w.report.How == HowRoute {
			d.Routes = append(d.Routes, kernel.PeerRoute(w.f.subnet, w.f.public, s.under.Name, most))
		}
		if w.report.How == HowTunnel {
			r := kernel.PeerRoute(w.f.subnet, w.f.public, kernel.IPIPName, most)
			r.OnLink = true
			d.Routes = append(d.Routes, r)
		}
		d.reached = append(d.reached, w.report)
	}
	return d
}

// ipipWay is the subnet of a peer, and how it is reached.
type ipipWay struct {
	r      *lease.Record
	f      family
	report Reached // skipped if it cannot be used
}

// ways looks at every record. A network of this type has no IPv6.
func (i *ipip) ways(s situation) (out []ipipWay) {
	for n := range s.set.Peers {
		r := &s.set.Peers[n]
		for _, f := range families(*r, s.set, s.under) {
			w := ipipWay{r, f, f.reached(*r, typeIPIP)}
			switch {
			case w.report.How == HowSkipped:
			case !f.public.Is4():
				w.report = w.report.skip("it has no %s", f.publicKey)
			case !f.local.IsValid():
				w.report = w.report.skip("this node has no %s address on the underlay", familyName(f.six))
			default:
				w.report = chooseWay(w.report, f, s, i.DirectRouting, false)
			}
			out = append(out, w)
		}
	}
	return out
}

// userIPIP is ipip in user space: the same records, and the same packets as the kernel's device sends, so
// that nodes of both kinds mix.
type userIPIP struct {
	*ipip
	// why says why the kernel does not do it; "" if the config says so.
	why string
}

func (i userIPIP) trait() trait {
	t := i.ipip.trait()
	t.joinsHurt = true
	// path socket's TUN, and in place of UDP sockets the raw one of the format
	o := plane.Options{Format: encap.FormatIPIP, Path: tunnel.PathSocket, Forwarding: plane.ForwardingOff}
	t.plane = &planeTrait{options: o, recv: tunnel.RecvProbe} // what needs no UDP
	if i.why != "" {
		t.plane.note = "ipip is carried in user space: " + i.why
	}
	return t
}

// want implements backendType.
func (i userIPIP) want(s situation) desired {
	d := desired{spec: localSpec(s, i.senders)}
	d.spec.JoinedUDP = s.joiner != ""
	for _, w := range i.ways(s) {
		d.reached = append(d.reached, w.report)
		if w.report.How == HowSkipped {
			continue
		}
		if w.report.How == HowRoute {
			d.Routes = append(d.Routes, kernel.PeerRoute(w.f.subnet, w.f.public, s.under.Name,
				routeMTU(*w.r, false, s.mtu)))
		}
		p := tunnel.PeerSpec{Name: w.report.Peer, Addr: w.f.public, Subnets: []netip.Prefix{w.f.subnet},
			InnerSources: []netip.Addr{w.f.public}, Sources: []netip.Addr{w.f.public}}
		if x := w.r.Weft; x != nil {
			p.Weft, p.Recv, p.MTU = true, tunnel.ParseRecv(x.Recv), x.MTU
			for _, a := range x.Addrs {
				if a.Is4() {
					p.Sources = append(p.Sources, a)
				}
			}
		}
		d.add(w.r, p, len(d.reached)-1)
	}
	d.settleAddrs(s.tenure, s.displaced)
	d.spec.LeftOut = d.unreached()
	return d
}
