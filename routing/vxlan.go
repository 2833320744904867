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
func isVTEP(d kernel.Device) bool { return d.Kind == kernel.KindVXLAN && kernel.IsVTEPName(d.Name) }

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
	userSpace
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
// there. In user space there are no forms of datagrams: what kernels take is all that is sent.
func (v *vxlan) Facts() Facts {
	f := Facts{
		Port: v.port(), DataV4: true, DataV6: true,
		Guard:   hostrules.Guard{Port: v.port(), Peers: v.check() != tunnel.CheckOff},
		Feature: &Feature{Name: kernel.KindVXLAN},
		record:  typeVXLAN, path: PathKernel, asksHops: v.direct(),
	}
	if v.user {
		f.plane, f.note = v.options(encap.FormatVXLAN, v.port()), v.lacks()
	}
	return v.facts(f, "carry the packets")
}

// lacks is what works less well in user space.
func (v *vxlan) lacks() string {
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

func (v *vxlan) port() uint16 { return cmp.Or(v.Port, DefaultVXLANPort) }

// open implements opener. A device that is there keeps its MAC, also if flannel made it, so that no peer has
// to learn another.
//
//nolint:unparam // it implements opener, and others have a driver
func (v *vxlan) open(_ context.Context, c BackendConfig) (settings, driver, error) {
	var fault error
	n, there := v.withMACs(c.Node), false
	for six, mac := range map[bool]*kernel.MAC{false: &n.mac4, true: &n.mac6} {
		switch have, err := c.Kernel.Device(kernel.VTEPName(six, v.VNI)); {
		case err == nil && have.Kind == kernel.KindVXLAN:
			there, *mac = true, have.MAC
		case err != nil && !errors.Is(err, kernel.ErrNoLink):
			fault = err
		}
	}
	err := n.decide(c, kernel.KindVXLAN, there)
	switch {
	case err != nil:
		return nil, nil, err
	case !n.user:
		return n, nil, fault
	case v.GBP || v.Learning:
		c.Logger.Warn("GBP and Learning are the kernel's: in user space they have no effect")
	}
	return v.inUserSpace(c.Node, n.why), nil, nil
}

// withMACs is v of a node, with the MACs that its devices are made with.
func (v *vxlan) withMACs(node string) *vxlan {
	w := *v
	w.mac4, w.mac6 = vtepMAC(node, false, v.VNI, v.MacPrefix.bytes),
		vtepMAC(node, true, v.VNI, v.MacPrefix.bytes)
	return &w
}

// inUserSpace is vxlan in user space: the same records and the same bytes as the kernel's devices, so that
// nodes of both kinds mix, with one TUN in place of a device for each family.
func (v *vxlan) inUserSpace(node, why string) settings {
	n := v.withMACs(node)
	n.user, n.why = true, why
	return n
}

// direct reports whether peers are reached by plain routes where they can be. Type auto has no say by the
// key.
func (v *vxlan) direct() bool { return v.DirectRouting || v.auto }

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
	outer, mtu := u.MTU, u.MTU
	if v.user {
		outer = outerMTU(u.MTU, v.MTU)
	}
	var faults []error
	for _, six := range []bool{false, true} {
		if !v.enabled(six) {
			continue
		}
		m, err := vtepMTU(u.MTU, v.MTU, six)
		if err == nil {
			mtu = min(mtu, m)
		}
		faults = append(faults, err)
	}
	return mtus{outer, mtu}, errors.Join(faults...)
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

// sameMAC is what to do about two devices with one MAC: frames from our own, or from two nodes' common one,
// are lost.
const sameMAC = "delete one of the two devices, or give the nodes identities of their own"

// want implements settings. A peer's record has to be sound on a direct way too: without, its answers by the
// tunnel would be lost.
func (v *vxlan) want(s situation) desired {
	d := desired{ways: s.ways(typeVXLAN)}
	devices := v.addDevices(&d, s)
	for w := range d.used() {
		mac, err := parseVTEPData(w.data, v.VNI)
		switch {
		case v.user && !w.encapsulated():
		case !w.public.IsValid():
			w.skip("it has no %s", w.publicKey())
		case !v.user && !devices[w.six]:
			w.skip("this node has no device for %s: see the error", w.family())
		case err != nil:
			w.skip("%s: %v", w.dataKey(), err)
		case !v.user && mac == v.mac(w.six):
			w.skip("its VtepMAC %v is this node's too: %s", mac, sameMAC)
		default:
			w.mac, w.needs = mac, claim{mac: mac, six: w.six}
			w.choose(s, v.direct(), v.auto)
		}
	}
	if v.user { // a node is one peer for each family, each with its address and MAC, as the kernel's two devices
		for w := range d.used() {
			w.send(w.public, false)
		}
		d.carry(s, v.senders, false, 0)
		d.spec.VNI, d.spec.MAC4, d.spec.MAC6 = v.VNI, v.mac4, v.mac6
		return d
	}
	d.assign(s)
	for w := range d.used() {
		route := w.route(s)
		if w.How == HowTunnel {
			name, base := kernel.VTEPName(w.six, v.VNI), w.Subnet.Masked().Addr()
			route.Gateway, route.Link, route.OnLink = base, name, true
			d.Neighs = append(d.Neighs, kernel.Neigh{Link: name, Addr: base, MAC: w.mac, Permanent: true})
			d.FDBs = append(d.FDBs, kernel.FDB{Link: name, MAC: w.mac, Dst: w.public, Permanent: true})
		}
		d.Routes = append(d.Routes, route)
	}
	return d
}

// addDevices adds the kernel's devices, and says which families have one. One that the underlay's MTU does
// not suffice for has none.
func (v *vxlan) addDevices(d *desired, s situation) map[bool]bool {
	devices := map[bool]bool{}
	for _, six := range []bool{false, true} {
		local, own := s.under.Addr4, s.set.Own.V4
		if six {
			local, own = s.under.Addr6, s.set.Own.V6
		}
		mtu, err := vtepMTU(s.under.MTU, v.MTU, six)
		if v.user || !v.enabled(six) || !local.IsValid() || !own.IsValid() || err != nil {
			continue
		}
		devices[six] = true
		name, base := kernel.VTEPName(six, v.VNI), own.Masked().Addr()
		d.Devices = append(d.Devices, kernel.Device{
			Name: name, Kind: kernel.KindVXLAN, Alias: kernel.Alias, MAC: v.mac(six), MTU: mtu, Up: true,
			VNI: v.VNI, Port: v.port(), Under: s.under.Index, Local: local, GBP: v.GBP, Learning: v.Learning,
			Loose: v.direct(),
		})
		d.Addrs = append(d.Addrs, kernel.Addr{Link: name, Prefix: netip.PrefixFrom(base, base.BitLen())})
	}
	return devices
}
