package routing

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"weft/encap"
	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/underlay"
	"weft/tunnel"
)

// typeVXLAN is flannel's vxlan: the kernel tunnels, or this program does where the kernel cannot.
const typeVXLAN = "vxlan"

func vxlanType() Type {
	return Type{
		Name: typeVXLAN, Settings: func(c lease.NetworkConfig, _ func(string) bool) settings { return newVXLAN(c) },
		Device: isVTEP, Lasting: true,
		Help: map[string]string{
			"VNI":       "number of the VXLAN network",
			"GBP":       "VXLAN group policy extension",
			"Learning":  "the kernel's device learns MAC addresses",
			"MacPrefix": "first two bytes of the device's MAC address, as `0E-2A`",
		},
	}
}

// isVTEP reports whether d has a VTEP's name and kind.
func isVTEP(d kernel.Device) bool { return d.Kind == "vxlan" && kernel.IsVTEPName(d.Name) }

// DefaultVXLANPort is what the kernel takes if the config names none, as flannel does.
const DefaultVXLANPort = encap.PortVXLAN

// vxlan has the kernel tunnel packets between devices of flannel's names, one for each family.
type vxlan struct {
	// VNI is the network's number, of which the device's name has room for 15 bytes (IFNAMSIZ of if.h).
	VNI uint32 `default:"1" range:"0..9999999" range6:"0..9999" shared:"always"`
	// Port is every node's UDP port; 0 stands for the default, as with flannel.
	Port uint16 `default:"8472" range:"0..65535" shared:"port"`
	// MTU is the largest outer packet with its IP header, in bytes; 0 for that of the underlay link.
	MTU int `range:"576..65535" range6:"1350..65535"`
	// GBP is the group policy extension, Learning that the kernel learns senders. Both are
	// attributes of the device.
	GBP, Learning bool
	// DirectRouting has peers on the underlay's own link reached by plain routes.
	DirectRouting bool
	// Userspace says whether the data plane carries the packets: userAuto, userAlways or userNever.
	Userspace string `words:"auto always never"`
	// MacPrefix are the first two bytes of our MACs.
	MacPrefix macPrefix `want:"two bytes as \"0E-2A\""`
	dataPlane
	senders

	enabled4, enabled6 bool // the network's families
	// auto says that the type is auto: the records and the wire are vxlan's, and DirectRouting is on.
	auto       bool
	mac4, mac6 kernel.MAC // Open's
}

func newVXLAN(c lease.NetworkConfig) *vxlan {
	return &vxlan{enabled4: c.EnableIPv4, enabled6: c.EnableIPv6}
}

// macPrefix are two bytes, or nil.
type macPrefix struct{ bytes *[2]byte }

// UnmarshalJSON implements json.Unmarshaler. "" is as good as no key.
func (p *macPrefix) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil || text == "" {
		return err
	}
	b, err := kernel.ParseMACPrefix(text)
	p.bytes = &b
	return err
}

// Facts implements settings. A node without a family's data publishes no VTEP for it, and is not reached
// there.
func (v *vxlan) Facts() Facts {
	f := Facts{
		Carrier: CarrierEither, Port: v.port(), DataV4: true, DataV6: true,
		Guard: hostrules.Guard{Port: v.port(), Peers: v.check() != tunnel.CheckOff},
		Feature: &Feature{Name: "vxlan", Probe: kernel.Aside((*kernel.Kernel).ProbeVXLAN),
			Missing: kernel.ErrNoVXLAN},
	}
	return f.carriedAs(v.Userspace, "carry the packets")
}

func (v *vxlan) port() uint16 { return cmp.Or(v.Port, DefaultVXLANPort) }

// open implements opener. A device that is there keeps its MAC, also if flannel made it, so that no peer has
// to learn another.
//
//nolint:unparam // it implements opener, and others have a driver
func (v *vxlan) open(_ context.Context, c BackendConfig) (backendType, driver, error) {
	var fault error
	k, there := v.withMACs(c.Node), false
	for six, mac := range map[bool]*kernel.MAC{false: &k.mac4, true: &k.mac6} {
		switch have, err := c.Kernel.Tunnel(kernel.VTEPName(six, v.VNI)); {
		case err == nil && have.Kind == kernel.KindVXLAN:
			there, *mac = true, have.MAC
		case err != nil && !errors.Is(err, kernel.ErrNoLink):
			fault = err
		}
	}
	user, why, err := inUserSpace(c, v.Userspace, c.Kernel.ProbeVXLAN, kernel.ErrNoVXLAN, there)
	switch {
	case err != nil:
		return nil, nil, err
	case !user:
		return k, nil, fault
	}
	if why != "" {
		c.Logger.Warn("vxlan is carried in user space", "cause", why)
	}
	if v.GBP || v.Learning {
		c.Logger.Warn("GBP and Learning are the kernel's: in user space they have no effect")
	}
	return v.inUserSpace(c.Node, why), nil, nil
}

// withMACs is v of a node, with the MACs that its devices are made with.
func (v *vxlan) withMACs(node string) *vxlan {
	w := *v
	w.mac4, w.mac6 = vtepMAC(node, false, v.VNI, v.MacPrefix.bytes),
		vtepMAC(node, true, v.VNI, v.MacPrefix.bytes)
	return &w
}

func (v *vxlan) inUserSpace(node, why string) backendType { return userVTEP{v.withMACs(node), why} }

// direct reports whether peers are reached by plain routes where they can be. Type auto has no say by the
// key.
func (v *vxlan) direct() bool { return v.DirectRouting || v.auto }

func (v *vxlan) trait() trait {
	return trait{record: typeVXLAN, path: PathKernel, asksHops: v.direct()}
}

func (v *vxlan) publish() (data, v6data json.RawMessage) {
	if v.enabled4 {
		data = vtepData(v.VNI, v.mac4)
	}
	if v.enabled6 {
		v6data = vtepData(v.VNI, v.mac6)
	}
	return data, v6data
}

// sizes are the least of the devices': a pod has one for both families.
func (v *vxlan) sizes(u underlay.Link) (mtus, error) {
	link, mtu := u.MTU, u.MTU
	var faults []error
	for _, six := range []bool{false, true} {
		if !v.enabled(six) {
			continue
		}
		m, err := vtepMTU(link, v.MTU, six)
		if err == nil {
			mtu = min(mtu, m)
		}
		faults = append(faults, err)
	}
	return mtus{link, mtu}, errors.Join(faults...)
}

func (v *vxlan) enabled(six bool) bool {
	if six {
		return v.enabled6
	}
	return v.enabled4
}

func (v *vxlan) mac(six bool) kernel.MAC {
	if six {
		return v.mac6
	}
	return v.mac4
}

// vtepMAC is the address that a node of that identity gives to its device: the same after every
// boot, another for each node, family and VNI, locally administered and no group's.
func vtepMAC(node string, six bool, vni uint32, prefix *[2]byte) kernel.MAC {
	h := hmac.New(sha256.New, []byte(node))
	_, _ = fmt.Fprintf(h, "weft vtep 1 %s", kernel.VTEPName(six, vni)) // a hash takes everything
	m := kernel.MAC(h.Sum(nil))
	m[0] = m[0]&^1 | 2
	if prefix != nil {
		m[0], m[1] = prefix[0], prefix[1]
	}
	return m
}

// vtepData is BackendData, byte for byte flannel's.
func vtepData(vni uint32, m kernel.MAC) json.RawMessage {
	return fmt.Appendf(nil, `{"VNI":%d,"VtepMAC":"%s"}`, vni, m)
}

// parseVTEPData reads a peer's BackendData. Early flannel wrote no VNI, which is any.
func parseVTEPData(b json.RawMessage, vni uint32) (kernel.MAC, error) {
	if !given(b) {
		return kernel.MAC{}, fmt.Errorf("it publishes none")
	}
	var v struct {
		VNI     *uint32
		VtepMAC string
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return kernel.MAC{}, fmt.Errorf("it publishes %s, which is not what vxlan has", shorten(b))
	}
	if v.VNI != nil && *v.VNI != vni {
		return kernel.MAC{}, fmt.Errorf("its VNI is %d, this network's is %d", *v.VNI, vni)
	}
	return kernel.ParseMAC(v.VtepMAC)
}

// vtepMTU is the largest inner packet of one family's device, in bytes: with an IPv6 outer
// header 70 bytes less than outside, with IPv4's 50.
func vtepMTU(link, most int, six bool) (int, error) {
	outer := outerMTU(link, most)
	mtu, least := encap.InnerMTU(encap.FormatVXLAN, outer, six), minMTU4-encap.FormatVXLAN.Overhead(false)
	if six {
		least = minMTU6
	}
	return mtu, checkMTU(mtu, least, outer)
}

// want implements backendType. A family whose device the underlay's MTU does not suffice for has none.
func (v *vxlan) want(s situation) desired {
	var d desired
	devices := map[bool]bool{}
	for _, six := range []bool{false, true} {
		local, own := s.under.Addr4, s.set.Own.V4
		if six {
			local, own = s.under.Addr6, s.set.Own.V6
		}
		mtu, err := vtepMTU(s.under.MTU, v.MTU, six)
		if !v.enabled(six) || !local.IsValid() || !own.IsValid() || err != nil {
			continue
		}
		devices[six] = true
		name, base := kernel.VTEPName(six, v.VNI), own.Masked().Addr()
		d.Tunnels = append(d.Tunnels, kernel.Tunnel{
			Name: name, Kind: kernel.KindVXLAN, Alias: kernel.Alias, MAC: v.mac(six), MTU: mtu, Up: true,
			VNI: v.VNI, Port: v.port(), Under: s.under.Index, Local: local, GBP: v.GBP, Learning: v.Learning,
			Loose: v.direct(),
		})
		d.Addrs = append(d.Addrs, kernel.Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
	}
	d.settleMACs(v.remotes(s, devices), s.tenure, func(c remote) Reached { return v.enter(&d.State, c, s) })
	return d
}

// remote is one subnet of a peer, and the MAC that it publishes of its device.
type remote struct {
	way
	mac kernel.MAC
}

// remotes looks at every subnet of every record by itself. devices are the families that this node has one
// for. A peer's record has to be sound on a direct way too: without, its answers by the tunnel would be lost.
func (v *vxlan) remotes(s situation, devices map[bool]bool) []remote {
	var cs []remote
	for w := range s.ways(typeVXLAN) {
		c, report := remote{way: w}, w.report
		mac, err := parseVTEPData(w.f.data, v.VNI)
		switch {
		case report.How == HowSkipped:
		case !w.f.public.IsValid():
			c.report = report.skip("it has no %s", w.f.publicKey)
		case !devices[w.f.six]:
			c.report = report.skip("this node has no device for %s: see the error", familyName(w.f.six))
		case err != nil:
			c.report = report.skip("%s: %v", w.f.key, err)
		case mac == v.mac(w.f.six):
			c.report = report.skip("its VtepMAC %v is this node's too: %s", mac, sameMAC)
		default:
			c.mac = mac
		}
		cs = append(cs, c)
	}
	return cs
}

// sameMAC is what to do about two devices with one MAC: frames from our own, or from two nodes' common one,
// are lost.
const sameMAC = "delete one of the two devices, or give the nodes identities of their own"

// settleMACs gives each MAC to one subnet, and reports what enter makes of those that stay.
func (d *desired) settleMACs(cs []remote, before tenure, enter func(remote) Reached) {
	var bidders []bidder
	var of []int // whose each is
	for i, c := range cs {
		if c.report.How != HowSkipped {
			bidders = append(bidders, bidder{subnets: c.r.Subnets, created: c.r.Created,
				first: claim{mac: c.mac, six: c.f.six}})
			of = append(of, i)
		}
	}
	grants, after := settle(bidders, before)
	d.tenure = after
	for k, g := range grants {
		c := &cs[of[k]]
		if g.by != k {
			c.report = c.report.skip("its VtepMAC %v is %s's too, which had it first: %s", c.mac,
				cs[of[g.by]].report.Peer, sameMAC)
		}
	}
	for _, c := range cs {
		if c.report.How != HowSkipped {
			c.report = enter(c)
		}
		d.reached = append(d.reached, c.report)
	}
}

// enter adds what one subnet of a peer needs to o, and reports how it is reached.
func (v *vxlan) enter(o *kernel.State, c remote, s situation) Reached {
	c.report = chooseWay(c.report, c.f, s, v.direct(), v.auto)
	route := c.route(s)
	if c.report.How == HowTunnel {
		name, base := kernel.VTEPName(c.f.six, v.VNI), c.f.subnet.Masked().Addr()
		route.Gateway, route.Link, route.OnLink = base, name, true
		o.Neighs = append(o.Neighs, kernel.Neigh{Link: name, Addr: base, MAC: c.mac, Permanent: true})
		o.FDBs = append(o.FDBs, kernel.FDB{Link: name, MAC: c.mac, Dst: c.f.public, Permanent: true})
	}
	o.Routes = append(o.Routes, route)
	return c.report
}

// userVTEP is vxlan in user space: the same records and the same bytes as the kernel's devices, so
// that nodes of both kinds mix, with one TUN in place of a device for each family.
type userVTEP struct {
	*vxlan
	// why says why the kernel does not do it; "" if the config says so.
	why string
}

// trait has no forms of datagrams: what kernels take is all that is sent.
func (v userVTEP) trait() trait {
	t := v.vxlan.trait()
	t.plane = &planeTrait{options: v.options(encap.FormatVXLAN, v.port()), note: v.note()}
	return t
}

func (v userVTEP) note() string {
	var notes []string
	if v.why != "" {
		notes = append(notes, "vxlan is carried in user space: "+v.why)
	}
	if v.GBP || v.Learning {
		notes = append(notes, "GBP and Learning are the kernel's, and have no effect in user space: packets "+
			"leave without their mark, and come without")
	}
	return strings.Join(notes, "; ")
}

func (v userVTEP) sizes(u underlay.Link) (mtus, error) {
	m, err := v.vxlan.sizes(u)
	return mtus{outerMTU(u.MTU, v.MTU), m.inner}, err
}

// want implements backendType. A node is one peer for each family, since each has its own address and
// MAC, as the kernel's two devices have.
func (v userVTEP) want(s situation) desired {
	c := desired{spec: localSpec(s, v.senders)}
	c.spec.VNI, c.spec.MAC4, c.spec.MAC6 = v.VNI, v.mac4, v.mac6
	for w := range s.ways(typeVXLAN) {
		p := w.peer()
		switch mac, err := parseVTEPData(w.f.data, v.VNI); {
		case w.report.How == HowSkipped:
		case !w.f.public.IsValid():
			w.report = w.report.skip("it has no %s", w.f.publicKey)
		case !w.f.local.IsValid():
			w.report = w.report.skip("this node has no %s address on the underlay", familyName(w.f.six))
		case err != nil:
			w.report = w.report.skip("%s: %v", w.f.key, err)
		default:
			p.MAC, w.report = mac, chooseWay(w.report, w.f, s, v.direct(), v.auto)
		}
		c.carry(w, p, s)
	}
	c.settleAddrs(s.tenure, s.displaced)
	c.spec.LeftOut = c.unreached()
	return c
}
