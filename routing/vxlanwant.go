package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft/lease"
)

// vxlan has the kernel tunnel packets between devices of flannel's names, one for each family.
type vxlan struct {
	o                  VXLANOptions
	enabled4, enabled6 bool
	mac4, mac6         MAC
}

func (v vxlan) trait() trait {
	name := typeVXLAN
	if v.o.Auto {
		name = typeAuto
	}
	return trait{name: name, record: typeVXLAN, path: pathKernel, looks: v.o.DirectRouting}
}

func (v vxlan) publish() (data, v6data json.RawMessage) {
	if v.enabled4 {
		data = vtepData(v.o.VNI, v.mac4)
	}
	if v.enabled6 {
		v6data = vtepData(v.o.VNI, v.mac6)
	}
	return data, v6data
}

// mtu is the least of the devices': a pod has one for both families.
func (v vxlan) mtu(link int) (int, error) {
	mtu := link
	var faults []error
	for _, six := range []bool{false, true} {
		if !v.enabled(six) {
			continue
		}
		m, err := vtepMTU(link, v.o.MTU, six)
		if err == nil {
			mtu = min(mtu, m)
		}
		faults = append(faults, err)
	}
	return mtu, errors.Join(faults...)
}

func (v vxlan) enabled(six bool) bool {
	if six {
		return v.enabled6
	}
	return v.enabled4
}

func (v vxlan) mac(six bool) MAC {
	if six {
		return v.mac6
	}
	return v.mac4
}

// want implements way. A family whose device the underlay's MTU does not suffice for has none.
func (v vxlan) want(s situation) desired {
	var d desired
	devices := map[bool]bool{}
	for _, six := range []bool{false, true} {
		local, own := s.under.Addr4, s.set.Own.V4
		if six {
			local, own = s.under.Addr6, s.set.Own.V6
		}
		mtu, err := vtepMTU(s.under.MTU, v.o.MTU, six)
		if !v.enabled(six) || !local.IsValid() || !own.IsValid() || err != nil {
			continue
		}
		devices[six] = true
		name, base := vtepName(six, v.o.VNI), own.Masked().Addr()
		d.vteps = append(d.vteps, VTEP{
			Name: name, Alias: Alias, MAC: v.mac(six), MTU: mtu, Up: true,
			VNI: v.o.VNI, Port: v.o.Port, Under: s.under.Index, Local: local, GBP: v.o.GBP, Learning: v.o.Learning,
		})
		d.overlay.Addrs = append(d.overlay.Addrs, Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
	}
	d.settle(v.remotes(s, devices), s.tenure, func(c remote, report Reached) Reached { return v.peer(&d.overlay, c, report, s) })
	return d
}

// remote is one subnet of a peer, and what it publishes of its device.
type remote struct {
	r      lease.Record
	f      family
	mac    MAC
	report Reached // skipped if it cannot be used as it is
}

// remotes looks at every subnet of every record by itself. devices are the families that this node has one
// for. What a peer publishes has to be sound on a direct way too: without, its answers by the tunnel would be lost.
func (v vxlan) remotes(s situation, devices map[bool]bool) []remote {
	var cs []remote
	for _, r := range s.set.Peers {
		for _, f := range families(r, s.set, s.under) {
			c := remote{r: r, f: f, report: f.reached(r)}
			mac, err := parseVTEPData(f.data, v.o.VNI)
			switch {
			case !strings.EqualFold(r.BackendType, typeVXLAN):
				c.report = c.report.skip("its backend is %s, this network's is %s", backendName(r.BackendType), typeVXLAN)
			case !f.public.IsValid():
				c.report = c.report.skip("it has no %s", f.publicKey)
			case !devices[f.six]:
				c.report = c.report.skip("this node has no device for %s: see the error", familyName(f.six))
			case err != nil:
				c.report = c.report.skip("%s: %v", f.key, err)
			case mac == v.mac(f.six):
				c.report = c.report.skip("its VtepMAC %v is this node's too: %s", mac, sameMAC)
			default:
				c.mac = mac
			}
			cs = append(cs, c)
		}
	}
	return cs
}

// sameMAC is what to do about two devices with one MAC: frames from our own, or from two nodes' common one, are lost.
const sameMAC = "delete one of the two devices, or give the nodes identities of their own"

// settle gives each MAC to one subnet, and reports what enter makes of those that stay.
func (d *desired) settle(cs []remote, before tenure, enter func(remote, Reached) Reached) {
	var bidders []bidder
	var of []int // whose each is
	for i, c := range cs {
		if c.report.How != HowSkipped {
			bidders = append(bidders, bidder{subnets: c.r.Subnets, created: c.r.Created, first: claim{mac: c.mac, six: c.f.six}})
			of = append(of, i)
		}
	}
	grants, after := settle(bidders, before)
	d.tenure = after
	for k, g := range grants {
		c := &cs[of[k]]
		if g.by != k {
			c.report = c.report.skip("its VtepMAC %v is %s's too, which had it first: %s", c.mac, cs[of[g.by]].report.Peer, sameMAC)
		}
	}
	for _, c := range cs {
		if c.report.How != HowSkipped {
			c.report = enter(c, c.report)
		}
		d.reached = append(d.reached, c.report)
	}
}

// peer adds what one subnet of a peer needs to o, and reports how it is reached.
func (v vxlan) peer(o *overlay, c remote, report Reached, s situation) Reached {
	most := routeMTU(c.r, c.f.six, s.mtu)
	if report = v.choose(report, c.f, s); report.How == HowRoute {
		o.Routes = append(o.Routes, peerRoute(c.f.subnet, c.f.public, s.under.Link, most))
		return report
	}
	name, base := vtepName(c.f.six, v.o.VNI), c.f.subnet.Masked().Addr()
	route := peerRoute(c.f.subnet, base, name, most)
	route.OnLink = true
	o.Neighs = append(o.Neighs, Neigh{Link: name, Addr: base, MAC: c.mac, Permanent: true})
	o.FDBs = append(o.FDBs, FDB{Link: name, MAC: c.mac, Dst: c.f.public, Permanent: true})
	o.Routes = append(o.Routes, route)
	return report
}

// choose decides between a plain route and the tunnel, for a subnet that has both. The reason says
// why not the better one, with type auto also why that.
func (v vxlan) choose(report Reached, f family, s situation) Reached {
	report.How = HowTunnel
	if !v.o.DirectRouting {
		return report
	}
	h, known := s.hops[f.public]
	if report.Reason = "the way is not known yet"; known {
		report.Reason = h.indirect(f.public, s.under.Link)
	}
	if report.Reason != "" {
		return report
	}
	report.How = HowRoute
	if v.o.Auto {
		report.Reason = fmt.Sprintf("%v is on %s itself, so that it needs no tunnel", f.public, s.under.Link)
	}
	return report
}

// String is for the log.
func (v VTEP) String() string {
	return fmt.Sprintf("%s id %d local %v dstport %d", v.Name, v.VNI, v.Local, v.Port)
}
