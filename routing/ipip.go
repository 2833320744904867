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
	"weft/tunnel/port"
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
		Feature: &Feature{Name: "ipip", Probe: kernel.Aside((*kernel.Kernel).ProbeIPIP), Missing: kernel.ErrNoIPIP},
	}
	return f.carriedAs(i.Userspace, "carry the packets")
}

// open implements opener.
//
//nolint:unparam // it implements opener, and others have a driver
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
	for w := range s.ways(typeIPIP) {
		w = i.way(w, s)
		if w.report.How != HowSkipped {
			r := w.route(s)
			if w.report.How == HowTunnel {
				r.Link, r.OnLink = kernel.IPIPName, true
			}
			d.Routes = append(d.Routes, r)
		}
		d.reached = append(d.reached, w.report)
	}
	return d
}

// way looks at one subnet of a record. A network of this type has no IPv6.
func (i *ipip) way(w way, s situation) way {
	switch {
	case w.report.How == HowSkipped:
	case !w.f.public.Is4():
		w.report = w.report.skip("it has no %s", w.f.publicKey)
	case !w.f.local.IsValid():
		w.report = w.report.skip("this node has no %s address on the underlay", familyName(w.f.six))
	default:
		w.report = chooseWay(w.report, w.f, s, i.DirectRouting, false)
	}
	return w
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
	t.plane = &planeTrait{options: o, recv: port.RecvProbe} // what needs no UDP
	if i.why != "" {
		t.plane.note = "ipip is carried in user space: " + i.why
	}
	return t
}

// want implements backendType.
func (i userIPIP) want(s situation) desired {
	d := desired{spec: localSpec(s, i.senders)}
	d.spec.JoinedUDP = s.joiner != ""
	for w := range s.ways(typeIPIP) {
		w = i.way(w, s)
		p := w.peer()
		if w.r.Weft != nil {
			p.Recv = port.ParseRecv(w.r.Weft.Recv)
		}
		d.carry(w, p, s)
	}
	d.settleAddrs(s.tenure, s.displaced)
	d.spec.LeftOut = d.unreached()
	return d
}
