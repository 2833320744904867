package routing

import (
	"cmp"
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
	return (d.Kind == kernel.KindWireGuard || d.Kind == kernel.KindTUN) && kernel.IsWireGuardName(d.Name)
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
	userSpace
	senders

	enabled4, enabled6 bool // the network's families
	seals
	public func() wireguard.PublicKey // the node's own now
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
		Port: w.firstPort(), Port6: w.secondPort(), DataV4: true, DataV6: true,
		Guard:   hostrules.Guard{Port: w.firstPort(), Port6: w.secondPort()},
		Feature: &Feature{Name: kernel.KindWireGuard},
		record:  typeWireGuard, path: PathKernel, tunnels: true, seals: w.seals,
		asksHops: w.encrypt == encryptBetweenLinks,
	}
	if w.user {
		f.path = PathUserspace
	}
	return w.facts(f, "encrypt")
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

// parseWireGuardData reads a peer's BackendData or BackendV6Data. The port is 0 with a flannel from before
// 0.26, which means that all nodes have one port.
func parseWireGuardData(b json.RawMessage) (key wireguard.PublicKey, port uint16, err error) {
	if !given(b) {
		return key, 0, errors.New("it publishes none, and so no key")
	}
	var v struct {
		PublicKey string
		Port      uint16
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return key, 0, fmt.Errorf("it publishes %s, which is not what wireguard has", shorten(b))
	}
	if key, err = wireguard.ParsePublicKey(v.PublicKey); err != nil {
		return key, 0, fmt.Errorf("its PublicKey is %s: %w", shorten([]byte(v.PublicKey)), err)
	}
	return key, v.Port, nil
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

// want implements settings. The devices with their peers, []wireGuardDevice, are for the driver.
func (w *wireGuard) want(s situation) desired {
	devices := w.devices(s)
	d := desired{driven: devices, ways: s.ways(typeWireGuard)}
	for i := range d.ways {
		x := &d.ways[i]
		if x.How == HowSkipped {
			if w.encrypt != "" {
				x.Reason += fmt.Sprintf(`, with "Encrypt":%q`, w.encrypt)
			}
			continue
		}
		x.How = HowTunnel
		if err := w.reach(x, deviceFor(devices, x.six)); err != nil {
			x.skip("%v", err)
		} else if i > 0 && d.ways[i-1].r == x.r && d.ways[i-1].How != HowSkipped && d.ways[i-1].needs != x.needs {
			x.skip("its BackendData and BackendV6Data have two keys: one node has one")
		}
	}
	d.assign(s) // WireGuard knows a peer by its key: a second one with the same would take its packets
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
	for x := range d.used() {
		dev := deviceFor(devices, x.six)
		dev.addPeer(wireguard.Peer{
			Key: x.needs.key, Preshared: w.PSK.Secret, Endpoint: netip.AddrPortFrom(x.Via, x.port),
			Keepalive: w.PersistentKeepaliveInterval, AllowedIPs: []netip.Prefix{x.Subnet.Masked()},
		})
		if w.plainWay(x, s); x.How == HowRoute {
			d.Routes = append(d.Routes, x.route(s))
		} else if most := x.mtu(s.mtu); most > 0 { // all others go by the route to the network
			d.Routes = append(d.Routes, tunRoute(x.Subnet.Masked(), dev.name, most))
		}
	}
	return d
}

// addPeer adds one, or its subnet if the device has it already for the other family.
func (d *wireGuardDevice) addPeer(p wireguard.Peer) {
	if n := len(d.Peers); n > 0 && d.Peers[n-1].Key == p.Key { // the families of one record stand side by side
		d.Peers[n-1].AllowedIPs = append(d.Peers[n-1].AllowedIPs, p.AllowedIPs...)
		return
	}
	d.Peers = append(d.Peers, p)
}

// reach finds out a peer's key and where it is, or why it is not reached.
func (w *wireGuard) reach(x *way, dev *wireGuardDevice) error {
	if dev == nil {
		return fmt.Errorf("this node has no %s address on the underlay, which its packets would travel in: "+
			`"Mode":"auto" in the network config has both families travel in one`, x.family())
	}
	key, port, err := parseWireGuardData(x.data)
	if err != nil {
		return fmt.Errorf("%s: %w", x.dataKey(), err)
	}
	if key == w.public() {
		return errors.New("its PublicKey is this node's too: " + sameKey)
	}
	addr, err := w.address(x.r, dev)
	if err != nil {
		return err
	}
	if addr.Is6() != x.six { // the record has the port for that family beside that family's key
		other := x.r.BackendData
		if addr.Is6() {
			other = x.r.BackendV6Data
		}
		if _, p, err := parseWireGuardData(other); err == nil {
			port = p
		}
	}
	x.needs, x.Via, x.port = claim{key: key}, addr, cmp.Or(port, dev.Port)
	return nil
}

// address is where a peer is reached: with two devices in each one's family, with one as the mode says.
func (w *wireGuard) address(r *lease.Record, dev *wireGuardDevice) (netip.Addr, error) {
	a4, a6 := r.PublicIP, r.PublicIPv6
	if !dev.Local4.IsValid() {
		a4 = netip.Addr{}
	}
	if !dev.Local6.IsValid() {
		a6 = netip.Addr{}
	}
	switch {
	case !a4.IsValid() && !a6.IsValid():
		return netip.Addr{}, fmt.Errorf("no common address family: it is reached at %v, we send from %v",
			valid(r.PublicIP, r.PublicIPv6), valid(dev.Local4, dev.Local6))
	case !a4.IsValid():
		return a6, nil
	case !a6.IsValid(), !a4.IsPrivate(), a6.IsPrivate(), dev.Local6.IsPrivate():
		return a4, nil
	}
	return a6, nil // flannel's choice: a private address of IPv4, and public ones of IPv6 at both ends
}

// sameKey is what to do about two nodes with one key.
const sameKey = "one key file was copied to two nodes; delete it on one of them, which then makes its own"
