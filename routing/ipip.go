package routing

import (
	"context"
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
	userSpace
	senders
}

// Facts implements settings.
func (i *ipip) Facts() Facts {
	f := Facts{
		OnlyIPv4: "ipip carries IPv4 in IPv4, as flannel's does",
		Guard:    hostrules.Guard{Protocol: unix.IPPROTO_IPIP, Peers: i.check() != tunnel.CheckOff},
		Privilege: "it takes a raw socket on the underlay, and so CAP_NET_RAW there, which an ordinary user does " +
			"not have: use udp, vxlan or wireguard",
		Feature: &Feature{Name: kernel.KindIPIP},
		record:  typeIPIP, path: PathKernel, asksHops: i.DirectRouting, viaPublic: true,
	}
	if i.user {
		// path socket's TUN, and in place of UDP sockets the raw one of the format
		f.plane = &plane.Options{Format: encap.FormatIPIP, Path: tunnel.PathSocket,
			Forwarding: plane.ForwardingOff}
		f.recv, f.joinsHurt = port.RecvProbe, true // what needs no UDP
	}
	if i.why != "" {
		f.note = "ipip is carried in user space: " + i.why
	}
	return i.facts(f, "carry the packets")
}

// open implements opener.
//
//nolint:unparam // it implements opener, and others have a driver
func (i *ipip) open(_ context.Context, c BackendConfig) (settings, driver, error) {
	n := *i
	have, none := c.Kernel.Device(kernel.IPIPName)
	err := n.decide(c, kernel.KindIPIP, none == nil && have.Kind == kernel.KindIPIP)
	if err == nil && n.user && c.Unprivileged {
		err = errors.New(i.Facts().Privilege)
	}
	return &n, nil, err
}

// inUserSpace is ipip in user space: the same records, and the same packets as the kernel's device sends, so
// that nodes of both kinds mix.
func (i *ipip) inUserSpace(_, why string) settings {
	n := *i
	n.user, n.why = true, why
	return &n
}

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

// want implements settings. A network of this type has no IPv6.
func (i *ipip) want(s situation) desired {
	d := desired{ways: s.ways(typeIPIP)}
	for w := range d.used() {
		if w.encapsulated() {
			w.choose(s, i.DirectRouting, false)
			w.send(w.public, false)
		}
	}
	if i.user {
		d.carry(s, i.senders, false, port.RecvProbe)
		d.spec.CoalescedUDP = s.joiner != ""
		return d
	}
	if own := s.set.Own.V4; own.IsValid() && s.under.Addr4.IsValid() {
		base := own.Masked().Addr()
		d.Devices = []kernel.Device{{
			Name: kernel.IPIPName, Kind: kernel.KindIPIP, Alias: kernel.Alias, MTU: s.mtu, Up: true,
			Local: s.under.Addr4, Loose: true,
		}}
		d.Addrs = []kernel.Addr{{Link: kernel.IPIPName, Prefix: netip.PrefixFrom(base, base.BitLen())}}
	}
	for w := range d.used() {
		r := w.route(s)
		if w.How == HowTunnel {
			r.Link, r.OnLink = kernel.IPIPName, true
		}
		d.Routes = append(d.Routes, r)
	}
	return d
}
