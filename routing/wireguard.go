package routing

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/wireguard"
	"weft/routing/underlay"
)

// typeWireGuard is flannel's wireguard: the kernel encrypts, or this program does where the kernel cannot.
const typeWireGuard = "wireguard"

func wireGuardType() Type {
	return Type{
		Name: typeWireGuard, Settings: func(c lease.NetworkConfig, _ func(string) bool) settings {
			return newWireGuard(c)
		},
		Device: isWireGuardDevice,
		Help: map[string]string{
			"ListenPort":   "UDP port of every node",
			"ListenPortV6": "UDP port of the device for IPv6 with `Mode` `separate`",
			"PSK":          "key that all nodes share, as `wg genpsk` makes it",
			"Mode": "`separate`: a device for each family; `ipv4`, `ipv6`: one device over that " +
				"family; `auto`: one device, over IPv4 unless only IPv6 is public",
			"PersistentKeepaliveInterval": "seconds of silence until a packet is sent to each peer; 0 is never",
		},
	}
}

// isWireGuardDevice reports whether d has a name of flannel's, and is the kernel's device or our TUN in its
// place.
func isWireGuardDevice(d kernel.Device) bool {
	return (d.Kind == "wireguard" || d.Kind == "tun") && kernel.IsWireGuardName(d.Name)
}

// The ports of flannel's two devices.
const (
	DefaultWireGuardPort  = 51820
	DefaultWireGuardPort6 = 51821
)

// The words of Mode. With modeSeparate each family has a device of its own, whose packets travel in that
// family; else there is one device, and with modeAuto each peer is reached as its addresses suggest.
const (
	modeSeparate = "separate"
	modeAuto     = "auto"
	mode4        = "ipv4"
	mode6        = "ipv6"
)

// wireGuard is the pure part of the type.
type wireGuard struct {
	// ListenPort is every node's UDP port, and ListenPortV6 the one of the device for IPv6 if there are two.
	ListenPort   uint16 `default:"51820" range:"1..65535" shared:"port"`
	ListenPortV6 uint16 `default:"51821" range:"1..65535" shared:"port"`
	// MTU is the largest outer packet, in bytes; 0 for that of the underlay link.
	MTU int `range:"576..65535" range6:"1360..65535"`
	// PSK is the key that all nodes share beside their own.
	PSK preshared `secret:"yes" shared:"always" want:"32 random bytes in base64, as \"wg genpsk\" prints"`
	// PersistentKeepaliveInterval is after how many seconds of silence a packet is sent to each peer; 0 for
	// never.
	PersistentKeepaliveInterval int `range:"0..65535"`
	// Mode is one of the modes.
	Mode string `words:"separate auto ipv4 ipv6"`
	// Userspace says who encrypts: userAuto, userAlways or userNever.
	Userspace string `words:"auto always never"`
	senders

	enabled4, enabled6 bool // the network's families
	seals
	public func() wireguard.PublicKey // the node's own now
	user   bool                       // it is this program that encrypts
	why    string                     // for want of what; "" if the config says so
}

func newWireGuard(c lease.NetworkConfig) *wireGuard {
	return &wireGuard{enabled4: c.EnableIPv4, enabled6: c.EnableIPv6}
}

// preshared is a key in base64; the zero Secret for none.
type preshared struct{ wireguard.Secret }

// UnmarshalJSON implements json.Unmarshaler. "" is as good as no key. The error does not quote the value.
func (p *preshared) UnmarshalJSON(raw []byte) (err error) {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return errors.New("it is no string")
	}
	if text != "" {
		p.Secret, err = wireguard.ParseSecret(text)
	}
	return err
}

// Facts implements settings.
func (w *wireGuard) Facts() Facts {
	f := Facts{
		Carrier: CarrierEither, Port: w.firstPort(), Port6: w.secondPort(), DataV4: true, DataV6: true,
		Guard: hostrules.Guard{Port: w.firstPort(), Port6: w.secondPort()},
		Feature: &Feature{Name: "wireguard", Probe: kernel.Aside((*kernel.Kernel).ProbeWireGuard),
			Missing: kernel.ErrNoWireGuard},
	}
	return f.carriedAs(w.Userspace, "encrypt")
}

// firstPort is the port that the node is known by.
func (w *wireGuard) firstPort() uint16 {
	if w.Mode == modeSeparate && !w.enabled4 {
		return w.ListenPortV6
	}
	return w.ListenPort
}

// secondPort is the one over IPv6 if that is another than the first; else 0.
func (w *wireGuard) secondPort() uint16 {
	if w.Mode == modeSeparate && w.enabled4 && w.enabled6 {
		return w.ListenPortV6
	}
	return 0
}

// fault implements checker.
func (w *wireGuard) fault() error {
	if w.secondPort() == 0 || w.ListenPort != w.ListenPortV6 {
		return nil
	}
	return &lease.ConfigError{Key: backendPrefix + "ListenPortV6", Got: fmt.Sprint(w.ListenPortV6),
		Want: `another port than Backend.ListenPort, since with "Mode":"separate" the node has two devices; ` +
			`"Mode":"auto" has one`}
}

// wireGuardOverhead is by how much a packet grows at the most, in bytes: an IPv6 header of 40, UDP's 8,
// WireGuard's 16 and the tag's 16. flannel takes it off whatever the outer family is, so that all nodes of a
// network have one MTU.
const wireGuardOverhead = 80

// wireGuardData is BackendData, byte for byte flannel's.
func wireGuardData(k wireguard.PublicKey, port uint16) json.RawMessage {
	return fmt.Appendf(nil, `{"PublicKey":"%s","Port":%d}`, k, port)
}

// wireGuardRecord is what a peer publishes. Port is 0 with a flannel from before 0.26, which means that all
// nodes have one port.
type wireGuardRecord struct {
	key  wireguard.PublicKey
	port uint16
}

// parseWireGuardData reads a peer's BackendData or BackendV6Data.
func parseWireGuardData(b json.RawMessage) (wireGuardRecord, error) {
	if !given(b) {
		return wireGuardRecord{}, fmt.Errorf("it publishes none, and so no key")
	}
	var v struct {
		PublicKey string
		Port      uint16
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return wireGuardRecord{}, fmt.Errorf("it publishes %s, which is not what wireguard has", shorten(b))
	}
	k, err := wireguard.ParsePublicKey(v.PublicKey)
	if err != nil {
		return wireGuardRecord{}, fmt.Errorf("its PublicKey is %s: %w", shorten([]byte(v.PublicKey)), err)
	}
	return wireGuardRecord{k, v.Port}, nil
}

func (w *wireGuard) trait() trait {
	t := trait{
		record: typeWireGuard, path: PathKernel, tunnels: true, seals: w.seals,
		asksHops: w.encrypt == encryptBetweenLinks,
	}
	if w.user {
		t.path = PathUserspace
	}
	return t
}

func (w *wireGuard) publish() (data, v6data json.RawMessage) {
	if w.enabled4 {
		data = wireGuardData(w.public(), w.ListenPort)
	}
	if w.enabled6 {
		port := w.ListenPort
		if w.Mode == modeSeparate {
			port = w.ListenPortV6
		}
		v6data = wireGuardData(w.public(), port)
	}
	return data, v6data
}

func (w *wireGuard) sizes(u underlay.Link) (mtus, error) {
	outer := outerMTU(u.MTU, w.MTU)
	inner, least := outer-wireGuardOverhead, minMTU4-wireGuardOverhead
	if w.enabled6 {
		least = minMTU6
	}
	return mtus{outer, inner}, checkMTU(inner, least, outer)
}

// wireGuardDevice is one of the devices of a node, and what it is to have, but for the private key and the
// MTU.
type wireGuardDevice struct {
	name string
	six  bool // the addresses and routes of that family are on it; with both, both are
	both bool
	wireguard.Config
}

// has reports whether packets of a family go by the device.
func (d *wireGuardDevice) has(six bool) bool { return d.both || d.six == six }

// devices are those that the node has, without peers. One whose family the underlay has no address in is left
// out: its sockets would have nowhere to be.
func (w *wireGuard) devices(s situation) (ds []wireGuardDevice) {
	local4, local6 := s.under.Addr4, s.under.Addr6
	if w.Mode != modeSeparate {
		if w.Mode == mode4 {
			local6 = netip.Addr{}
		}
		if w.Mode == mode6 {
			local4 = netip.Addr{}
		}
		if !local4.IsValid() && !local6.IsValid() {
			return nil
		}
		c := wireguard.Config{Port: w.ListenPort, Local4: local4, Local6: local6}
		return []wireGuardDevice{{name: kernel.WireGuardName(false), both: true, Config: c}}
	}
	if w.enabled4 && local4.IsValid() {
		c := wireguard.Config{Port: w.ListenPort, Local4: local4}
		ds = append(ds, wireGuardDevice{name: kernel.WireGuardName(false), Config: c})
	}
	if w.enabled6 && local6.IsValid() {
		c := wireguard.Config{Port: w.ListenPortV6, Local6: local6}
		ds = append(ds, wireGuardDevice{name: kernel.WireGuardName(true), six: true, Config: c})
	}
	return ds
}

// deviceFor is the one by which packets of a family go; nil if there is none.
func deviceFor(ds []wireGuardDevice, six bool) *wireGuardDevice {
	for i := range ds {
		if ds[i].has(six) {
			return &ds[i]
		}
	}
	return nil
}

// want implements backendType. The devices with their peers, []wireGuardDevice, are for the driver.
func (w *wireGuard) want(s situation) desired {
	devices := w.devices(s)
	d := desired{driven: devices}
	ways := w.ways(s, devices)
	settleKeys(&d, ways, s)
	for i := range devices {
		v := &devices[i]
		own := lease.Subnets{}
		if v.has(false) {
			own.V4 = s.set.Own.V4
		}
		if v.has(true) && s.mtu >= minMTU6 {
			own.V6 = s.set.Own.V6
		}
		d.State = d.State.With(tunState(v.name, s.mtu, own, s.set.Config))
	}
	for _, x := range ways {
		if x.report.How != HowSkipped {
			dev := deviceFor(devices, x.f.six)
			x.report = w.plainWay(x.report, x.r, x.f, s)
			switch most := routeMTU(*x.r, x.f.six, s.mtu); {
			case x.report.How == HowRoute:
				d.Routes = append(d.Routes, x.route(s))
			case most > 0:
				d.Routes = append(d.Routes, wireGuardRoute(x.f, dev.name, most))
			}
			dev.addPeer(wireguard.Peer{
				Key: x.key, Preshared: w.PSK.Secret, Endpoint: x.endpoint, Keepalive: w.PersistentKeepaliveInterval,
				AllowedIPs: []netip.Prefix{x.f.subnet.Masked()},
			})
		}
		d.reached = append(d.reached, x.report)
	}
	return d
}

// wireGuardRoute is a peer's own, where it takes smaller packets than we do: all others go by the route to
// the network.
func wireGuardRoute(f family, device string, most int) kernel.Route {
	r := kernel.Route{
		Dst: f.subnet.Masked(), Link: device, Scope: kernel.ScopeLink, Protocol: kernel.RouteProtocol, MTU: most,
	}
	if f.six {
		r.Scope, r.Metric, r.Gateway = kernel.ScopeUniverse, kernel.DefaultMetric6, gateway6
	}
	return r
}

// addPeer adds one, or its subnet if the device has it already for the other family.
func (d *wireGuardDevice) addPeer(p wireguard.Peer) {
	if n := len(d.Peers); n > 0 && d.Peers[n-1].Key == p.Key { // the families of one record stand side by side
		d.Peers[n-1].AllowedIPs = append(d.Peers[n-1].AllowedIPs, p.AllowedIPs...)
		return
	}
	d.Peers = append(d.Peers, p)
}

// wireGuardWay is one subnet of a peer, and how it is reached.
type wireGuardWay struct {
	way
	key      wireguard.PublicKey
	endpoint netip.AddrPort
}

// ways looks at every subnet of every record by itself.
func (w *wireGuard) ways(s situation, ds []wireGuardDevice) (out []wireGuardWay) {
	cut := map[netip.Addr]underlay.Displaced{}
	for _, x := range s.displaced {
		cut[x.Addr] = x
	}
	for one := range s.ways(typeWireGuard) {
		x := wireGuardWay{way: one}
		if x.report.How == HowSkipped {
			if w.encrypt != "" {
				x.report.Reason += fmt.Sprintf(`, with "Encrypt":%q`, w.encrypt)
			}
			out = append(out, x)
			continue
		}
		x.report.How = HowTunnel
		if err := w.reach(&x, deviceFor(ds, x.f.six)); err != nil {
			x.report = x.report.skip("%v", err)
		} else if c, displaced := cut[x.endpoint.Addr()]; displaced {
			x.report = x.report.skip("%s", c.Reason("its address"))
		}
		out = append(out, x)
	}
	return out
}

// reach finds out a peer's key and where it is, or why it is not reached.
func (w *wireGuard) reach(x *wireGuardWay, dev *wireGuardDevice) error {
	if dev == nil {
		return fmt.Errorf("this node has no %s address on the underlay, which its packets would travel in: "+
			`"Mode":"auto" in the network config has both families travel in one`, familyName(x.f.six))
	}
	published, err := parseWireGuardData(x.f.data)
	if err != nil {
		return fmt.Errorf("%s: %w", x.f.key, err)
	}
	if published.key == w.public() {
		return errors.New("its PublicKey is this node's too: " + sameKey)
	}
	x.key = published.key
	addr, err := w.address(x, dev)
	if err != nil {
		return err
	}
	port := published.port
	if addr.Is6() != x.f.six { // the record has the port for that family beside that family's key
		other := x.r.BackendData
		if addr.Is6() {
			other = x.r.BackendV6Data
		}
		if p, err := parseWireGuardData(other); err == nil {
			port = p.port
		}
	}
	if port == 0 {
		port = dev.Port
	}
	x.endpoint = netip.AddrPortFrom(addr, port)
	x.report.Via = addr
	return nil
}

// address is where a peer is reached: with two devices in each one's family, with one as the mode says.
func (w *wireGuard) address(x *wireGuardWay, dev *wireGuardDevice) (netip.Addr, error) {
	a4, a6 := x.r.PublicIP, x.r.PublicIPv6
	if !dev.Local4.IsValid() {
		a4 = netip.Addr{}
	}
	if !dev.Local6.IsValid() {
		a6 = netip.Addr{}
	}
	switch {
	case !a4.IsValid() && !a6.IsValid():
		return netip.Addr{}, fmt.Errorf("no common address family: it is reached at %v, we send from %v",
			valid(x.r.PublicIP, x.r.PublicIPv6), valid(dev.Local4, dev.Local6))
	case !a4.IsValid():
		return a6, nil
	case !a6.IsValid(), !a4.IsPrivate(), a6.IsPrivate(), dev.Local6.IsPrivate():
		return a4, nil
	}
	return a6, nil // flannel's choice: a private address of IPv4, and public ones of IPv6 at both ends
}

// sameKey is what to do about two nodes with one key.
const sameKey = "one key file was copied to two nodes; delete it on one of them, which then makes its own"

// settleKeys gives each key to one record: WireGuard knows a peer by it, and a second one with the same would
// take the first one's packets.
func settleKeys(d *desired, ways []wireGuardWay, s situation) {
	var bidders []bidder
	var of []int // whose each is
	for i, x := range ways {
		if x.report.How != HowSkipped && (len(of) == 0 || ways[of[len(of)-1]].r != x.r) {
			bidders = append(bidders, bidder{subnets: x.r.Subnets, created: x.r.Created, first: claim{key: x.key}})
			of = append(of, i)
		}
	}
	grants, after := settle(bidders, s.tenure)
	d.tenure = after
	for k, g := range grants {
		for i := of[k]; i < len(ways) && ways[i].r == ways[of[k]].r; i++ {
			switch x := &ways[i]; {
			case x.report.How == HowSkipped:
			case g.by != k:
				first := ways[of[g.by]].report.Peer
				x.report = x.report.skip("its PublicKey %v is %s's too, which had it first: %s", x.key, first, sameKey)
			case x.key != ways[of[k]].key:
				x.report = x.report.skip("its BackendData and BackendV6Data have two keys: one node has one")
			}
		}
	}
}
