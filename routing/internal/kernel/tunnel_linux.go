package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrNoVXLAN says that this kernel makes no vxlan devices: it was built without, or the module
// vxlan is not installed. It is the kernel's own answer to a request for one.
var ErrNoVXLAN = errors.New("this kernel has no vxlan (the module vxlan, as in linux-modules-extra, would " +
	"bring it)")

// Tunnel looks up a device. Of one that is of another kind it has name, number, alias and kind. The error
// wraps ErrNoLink.
func (k *Kernel) Tunnel(name string) (Tunnel, error) {
	l, err := k.link(name)
	if err != nil {
		return Tunnel{}, err
	}
	switch l := l.(type) {
	case *netlink.Vxlan:
		return fromVXLAN(l), nil
	case *netlink.Iptun:
		return fromIPIP(l), nil
	}
	return tunnelOf(l), nil
}

// tunnelOf has what every link has.
func tunnelOf(l netlink.Link) Tunnel {
	a := l.Attrs()
	return Tunnel{
		Name: a.Name, Kind: l.Type(), Index: a.Index, Alias: a.Alias, MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0,
	}
}

// option is an attribute that we leave at the kernel's default, and whether it is set.
type option struct {
	name string
	set  bool
}

// othersOf is Tunnel.Other.
func othersOf(options ...option) string {
	var names []string
	for _, o := range options {
		if o.set {
			names = append(names, o.name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "it has " + strings.Join(names, ", ")
}

func fromVXLAN(x *netlink.Vxlan) Tunnel {
	v := tunnelOf(x)
	v.VNI, v.Port, v.Under, v.Local = uint32(x.VxlanId), uint16(x.Port), x.VtepDevIndex, fromIP(x.SrcAddr)
	v.GBP, v.Learning = x.GBP, x.Learning
	copy(v.MAC[:], x.HardwareAddr)
	v.Other = othersOf([]option{
		{"group", fromIP(x.Group).IsValid() && !fromIP(x.Group).IsUnspecified()},
		{"ttl", x.TTL != 0}, {"tos", x.TOS != 0}, {"proxy", x.Proxy}, {"rsc", x.RSC}, {"l2miss", x.L2miss},
		{"l3miss", x.L3miss},
		{"external", x.FlowBased}, {"noage", x.NoAge}, {"limit", x.Limit != 0},
		{"port range", x.PortLow != 0 || x.PortHigh != 0},
		{"udp6zerocsumtx", x.UDP6ZeroCSumTx}, {"udp6zerocsumrx", x.UDP6ZeroCSumRx},
	}...)
	return v
}

func fromIPIP(x *netlink.Iptun) Tunnel {
	v := tunnelOf(x)
	v.Local = fromIP(x.Local)
	v.Other = othersOf([]option{
		{"remote", fromIP(x.Remote).IsValid() && !fromIP(x.Remote).IsUnspecified()},
		{"ttl", x.Ttl != 0}, {"tos", x.Tos != 0}, {"dev", x.Link != 0}, {"external", x.FlowBased},
		{"encap", x.EncapType != 0},
	}...)
	return v
}

// AddTunnel makes a device, down. The error wraps ErrNoVXLAN or ErrNoIPIP if the kernel cannot.
func (k *Kernel) AddTunnel(v Tunnel) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = v.Name, v.MTU
	var l netlink.Link = &netlink.Iptun{LinkAttrs: a, Local: v.Local.AsSlice()}
	missing := ErrNoIPIP
	if v.Kind == KindVXLAN {
		a.HardwareAddr, missing = hardware(v.MAC), ErrNoVXLAN
		l = &netlink.Vxlan{
			LinkAttrs: a, VxlanId: int(v.VNI), VtepDevIndex: v.Under, SrcAddr: v.Local.AsSlice(),
			Port: int(v.Port), GBP: v.GBP, Learning: v.Learning,
		}
	}
	err := k.addLink(l, missing)
	if errors.Is(err, unix.EEXIST) {
		if who := k.like(v); who != "" {
			err = fmt.Errorf("%w: %s", err, who)
		}
	}
	return Wrap("add link "+v.String(), err)
}

// addLink is LinkAdd, with the kernel's answer to an unknown type made missing.
func (k *Kernel) addLink(l netlink.Link, missing error) error {
	err := k.h.LinkAdd(l)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", missing, err)
	}
	return err
}

// probeDevice is the name of the device that ProbeVXLAN makes. It stays only if the process is killed
// meanwhile. It is never up, so that its port is not opened.
const (
	probeDevice = "weft-probe"
	probeVNI    = 1<<24 - 1
	probePort   = 1
)

// ProbeVXLAN asks the kernel whether it can make vxlan devices, by making one for a moment.
// The error wraps ErrNoVXLAN if it cannot.
func (k *Kernel) ProbeVXLAN() error {
	a := netlink.NewLinkAttrs()
	a.Name = probeDevice
	var l netlink.Link = &netlink.Vxlan{LinkAttrs: a, VxlanId: probeVNI, Port: probePort}
	if k.VXLANKind != "" {
		l = &netlink.GenericLink{LinkAttrs: a, LinkType: k.VXLANKind}
	}
	return k.probe(l, KindVXLAN, ErrNoVXLAN)
}

// like names the device in whose place the kernel makes no other, and what to do; "" if there is none.
func (k *Kernel) like(v Tunnel) string {
	ls, _ := k.h.LinkList()
	for _, l := range ls {
		switch x := l.(type) {
		case *netlink.Vxlan:
			if v.Kind == KindVXLAN && x.VxlanId == int(v.VNI) && x.Port == int(v.Port) {
				return fmt.Sprintf("link %s has VNI %d on port %d: ip link del %s if nothing uses it, or choose "+
					"another VNI", x.Name, v.VNI, v.Port, x.Name)
			}
		case *netlink.Iptun:
			if v.Kind == KindIPIP && fromIP(x.Local) == v.Local && !fromIP(x.Remote).IsValid() {
				return fmt.Sprintf("link %s sends from %v to any address: ip link del %s if nothing uses it", x.Name,
					v.Local, x.Name)
			}
		}
	}
	return ""
}

// IsProbe reports whether l is the device of ProbeVXLAN, ProbeWireGuard or ProbeIPIP, which is never marked:
// it should be gone at once.
func IsProbe(l netlink.Link) bool {
	if l.Type() == wireGuardKind || l.Type() == KindIPIP {
		return l.Attrs().Name == probeDevice && l.Attrs().Flags&net.FlagUp == 0
	}
	x, ok := l.(*netlink.Vxlan)
	return ok && x.Name == probeDevice && x.VxlanId == probeVNI && x.Port == probePort &&
		x.Attrs().Flags&net.FlagUp == 0
}

// VTEPsOnPort lists the vxlan devices of a UDP port.
func (k *Kernel) VTEPsOnPort(port uint16) ([]Tunnel, error) {
	ls, err := k.Links()
	var vs []Tunnel
	for _, l := range ls {
		if x, ok := l.(*netlink.Vxlan); ok && x.Port == int(port) {
			vs = append(vs, fromVXLAN(x))
		}
	}
	return vs, err
}

// RemoveTunnel deletes a vxlan device if it is ours or flannel's; else the error says why not.
func (k *Kernel) RemoveTunnel(v Tunnel, networks []netip.Prefix) error {
	addrs, err := k.LinkAddrs(v.Name)
	if err != nil {
		return err
	}
	if why := TunnelStrange(v, addrs, networks); why != "" {
		return errors.New(why)
	}
	return k.DelLink(v.Name)
}

// DelLink deletes a link; one that is gone already is no error.
func (k *Kernel) DelLink(name string) error {
	l, err := k.link(name)
	if errors.Is(err, ErrNoLink) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := k.h.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete link %s: %w", name, err)
	}
	return nil
}

// SetTunnel changes the named attributes (TunnelChange.Set) to those of v. The error wraps ErrNoLink if it is
// gone.
func (k *Kernel) SetTunnel(v Tunnel, names []string) (done int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	l, err := k.link(v.Name)
	if err != nil {
		return 0, err
	}
	var faults []error
	for _, name := range names {
		switch name {
		case "mac":
			err = k.h.LinkSetHardwareAddr(l, hardware(v.MAC))
		case "mtu":
			err = k.h.LinkSetMTU(l, v.MTU)
		case "alias":
			err = k.h.LinkSetAlias(l, v.Alias)
		case "up":
			if err = k.h.LinkSetUp(l); errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w: another program has a socket on UDP port %d: stop it, or choose another Port",
					err, v.Port)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("set %s of link %s: %w", name, v.Name, err))
			continue
		}
		done++
	}
	return done, errors.Join(faults...)
}

// SettleTunnel makes the settings of a device what its family needs: the other family is off, so that
// the kernel sends none of it into the tunnel.
func (k *Kernel) SettleTunnel(v Tunnel) error {
	six := v.Local.Is6()
	err := k.SetIPv6(v.Name, six)
	if v.Loose && !six {
		err = errors.Join(err, k.Loosen(v.Name))
	}
	return err
}

// LinkAddrs are the addresses of one link.
func (k *Kernel) LinkAddrs(name string) ([]netip.Prefix, error) {
	d, err := k.Device(name)
	if err != nil {
		return nil, err
	}
	as, err := k.addrs()
	var out []netip.Prefix
	for _, a := range as {
		if a.LinkIndex == d.Index && a.IPNet != nil {
			out = append(out, fromIPNet(a.IPNet))
		}
	}
	return out, err
}

// Release returns the kernel's release, as uname prints it.
func (k *Kernel) Release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// Commands of SIOCETHTOOL, ethtool.h.
const (
	ethtoolGTxCsum = 0x16
	ethtoolSTxCsum = 0x17
)

// ethtoolValue is struct ethtool_value of ethtool.h.
type ethtoolValue struct{ cmd, data uint32 }

// StopTxChecksum makes the kernel complete checksums before a packet leaves by the link, as "ethtool -K
// NAME tx off" does. It reports whether that was so already.
func (k *Kernel) StopTxChecksum(name string) (already bool, err error) {
	err = k.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(s) }()
		v := ethtoolValue{cmd: ethtoolGTxCsum}
		if err := ethtool(s, name, &v); err != nil {
			return err
		}
		if already = v.data == 0; already {
			return nil
		}
		v = ethtoolValue{cmd: ethtoolSTxCsum}
		return ethtool(s, name, &v)
	})
	return already, Wrap("ethtool -K "+name+" tx off", err)
}

func ethtool(socket int, name string, v *ethtoolValue) error {
	// struct ifreq of if.h: the name, then a union of which ifr_data is a pointer.
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:unix.IFNAMSIZ-1], name)
	req.data = unsafe.Pointer(v)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&req))); errno != 0 {
		return errno
	}
	return nil
}
