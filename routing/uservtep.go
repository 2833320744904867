package routing

import (
	"net/netip"
	"strings"

	"weft/encap"
	"weft/lease"
	"weft/tunnel"
)

// userVTEP is vxlan in user space: the same records and the same bytes as the kernel's devices, so
// that nodes of both kinds mix, with one TUN in place of a device for each family.
type userVTEP struct {
	vxlan
	// why says why the kernel does not do it; "" if the config says so.
	why string
}

// carrierOptions are the keys that the data plane wants.
func (v userVTEP) carrierOptions() UDPOptions {
	return UDPOptions{Port: v.o.Port, Path: v.o.Path, Auto: v.o.AutoPath, Off: v.o.Off,
		SourceCheck: v.o.SourceCheck, AllowedSources: v.o.AllowedSources, MTU: v.o.MTU}
}

func (v userVTEP) format() encap.Format { return encap.FormatVXLAN }

func (v userVTEP) note() string {
	var notes []string
	if v.why != "" {
		notes = append(notes, "vxlan is carried in user space: "+v.why)
	}
	if v.o.GBP || v.o.Learning {
		notes = append(notes, "GBP and Learning are the kernel's, and have no effect in user space: packets leave without their mark, and come without")
	}
	return strings.Join(notes, "; ")
}

func (v userVTEP) sizes(u Underlay) (mtus, error) {
	inner, err := v.mtu(u.MTU)
	return mtus{outerMTU(u.MTU, v.carrierOptions()), inner}, err
}

// peers implements carried. A node is one peer for each family, since each has its own address and
// MAC, as the kernel's two devices have.
func (v userVTEP) peers(s situation, outer int, displaced []Displaced) carriedPeers {
	c := carriedPeers{spec: localSpec(s.set, s.under, mtus{outer, s.mtu}, v.carrierOptions())}
	c.spec.VNI, c.spec.MAC4, c.spec.MAC6 = v.o.VNI, encap.MAC(v.mac4), encap.MAC(v.mac6)
	for i := range s.set.Peers {
		r := &s.set.Peers[i]
		for _, f := range families(*r, s.set, s.under) {
			p, report := v.peerSpec(*r, f)
			if report.How == HowSkipped {
				c.reached = append(c.reached, report)
				continue
			}
			if report = v.choose(report, f, s); report.How == HowRoute {
				c.routes = append(c.routes, peerRoute(f.subnet, f.public, s.under.Link, routeMTU(*r, f.six, s.mtu)))
			}
			c.reached = append(c.reached, report)
			c.add(r, p, len(c.reached)-1)
		}
	}
	c.settle(s.tenure, displaced)
	return c
}

// peerSpec is one subnet of a peer.
func (v userVTEP) peerSpec(r lease.Record, f family) (tunnel.PeerSpec, Reached) {
	report := f.reached(r)
	p := tunnel.PeerSpec{Name: report.Peer, Addr: f.public, Subnets: []netip.Prefix{f.subnet}, InnerSources: []netip.Addr{f.public}}
	switch {
	case !strings.EqualFold(r.BackendType, typeVXLAN):
		return p, report.skip("its backend is %s, this network's is %s", backendName(r.BackendType), typeVXLAN)
	case !f.public.IsValid():
		return p, report.skip("it has no %s", f.publicKey)
	case !f.local.IsValid():
		return p, report.skip("this node has no %s address on the underlay", familyName(f.six))
	}
	mac, err := parseVTEPData(f.data, v.o.VNI)
	if err != nil {
		return p, report.skip("%s: %v", f.key, err)
	}
	p.MAC, p.Sources = encap.MAC(mac), []netip.Addr{f.public}
	if r.Weft != nil {
		p.Weft, p.MTU = true, r.Weft.MTU
		for _, a := range valid(r.Weft.Addrs...) {
			if a.Unmap().Is6() == f.six {
				p.Sources = append(p.Sources, a)
			}
		}
	}
	return p, report
}
