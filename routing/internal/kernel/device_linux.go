package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/routing/ownthread"
)

// ErrNoLink is for a device that does not exist.
var ErrNoLink = errors.New("no such link")

// NoDriver says that this kernel makes no devices of that kind: it was built without, or the module is not
// installed. It is the kernel's own answer to a request for one.
type NoDriver string

func (kind NoDriver) Error() string {
	if kind == KindWireGuard {
		return "this kernel has no WireGuard (Linux has it from 5.6 on, as the module wireguard)"
	}
	return fmt.Sprintf("this kernel has no %[1]s (the module %[1]s, as in linux-modules-extra, would bring it)",
		string(kind))
}

// link looks up a link by name. The error wraps ErrNoLink if there is none.
func (k *Kernel) link(name string) (netlink.Link, error) {
	l, err := k.h.LinkByName(name)
	return l, noLink("link "+name, err)
}

func noLink(what string, err error) error {
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = ErrNoLink
	}
	return Wrap(what, err)
}

// Device looks up one link by name. The error wraps ErrNoLink if there is none.
func (k *Kernel) Device(name string) (Device, error) {
	l, err := k.link(name)
	if err != nil {
		return Device{}, err
	}
	return DeviceOf(l), nil
}

// DeviceAt looks up one link by number. The error wraps ErrNoLink if there is none.
func (k *Kernel) DeviceAt(index int) (Device, error) {
	l, err := k.h.LinkByIndex(index)
	if err != nil {
		return Device{}, noLink(fmt.Sprint("link ", index), err)
	}
	return DeviceOf(l), nil
}

// Devices lists all links.
func (k *Kernel) Devices() ([]Device, error) {
	ls, err := dump(func() ([]netlink.Link, error) { return k.h.LinkList() })
	ds := make([]Device, len(ls))
	for i, l := range ls {
		ds[i] = DeviceOf(l)
	}
	return ds, Wrap("list links", err)
}

// DeviceOf is a link in our form.
func DeviceOf(l netlink.Link) Device {
	a := l.Attrs()
	d := Device{
		Name: a.Name, Alias: a.Alias, MTU: a.MTU, TxQueueLen: a.TxQLen, Up: a.RawFlags&unix.IFF_UP != 0,
		Kind: l.Type(), Index: a.Index, Parent: a.ParentIndex, Master: a.MasterIndex,
		Running: a.RawFlags&unix.IFF_RUNNING != 0,
	}
	copy(d.MAC[:], a.HardwareAddr)
	switch x := l.(type) {
	case *netlink.Tuntap:
		switch x.Mode {
		case netlink.TUNTAP_MODE_TUN:
			d.Kind = KindTUN
		case netlink.TUNTAP_MODE_TAP:
			d.Kind = kindTAP
		}
	case *netlink.Vxlan:
		d.VNI, d.Port, d.Under, d.Local = uint32(x.VxlanId), uint16(x.Port), x.VtepDevIndex, fromIP(x.SrcAddr)
		d.GBP, d.Learning = x.GBP, x.Learning
		d.Other = othersOf([]option{
			{"group", fromIP(x.Group).IsValid() && !fromIP(x.Group).IsUnspecified()},
			{"ttl", x.TTL != 0}, {"tos", x.TOS != 0}, {"proxy", x.Proxy}, {"rsc", x.RSC}, {"l2miss", x.L2miss},
			{"l3miss", x.L3miss},
			{"external", x.FlowBased}, {"noage", x.NoAge}, {"limit", x.Limit != 0},
			{"port range", x.PortLow != 0 || x.PortHigh != 0},
			{"udp6zerocsumtx", x.UDP6ZeroCSumTx}, {"udp6zerocsumrx", x.UDP6ZeroCSumRx},
		}...)
	case *netlink.Iptun:
		d.Local = fromIP(x.Local)
		d.Other = othersOf([]option{
			{"remote", fromIP(x.Remote).IsValid() && !fromIP(x.Remote).IsUnspecified()},
			{"ttl", x.Ttl != 0}, {"tos", x.Tos != 0}, {"dev", x.Link != 0}, {"external", x.FlowBased},
			{"encap", x.EncapType != 0},
		}...)
	}
	if a.NetNsID >= 0 || d.Kind == "veth" { // the other end of a veth is no parent
		d.Parent = 0
	}
	return d
}

// option is an attribute that we leave at the kernel's default, and whether it is set.
type option struct {
	name string
	set  bool
}

// othersOf is Device.Other.
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

// AddDevice makes a device of a kind that we make, or of WireGuard, down. The error wraps
// NoDriver if the kernel cannot.
func (k *Kernel) AddDevice(d Device) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = d.Name, d.MTU
	var l netlink.Link
	switch d.Kind {
	case KindVXLAN:
		a.HardwareAddr = hardware(d.MAC)
		l = &netlink.Vxlan{
			LinkAttrs: a, VxlanId: int(d.VNI), VtepDevIndex: d.Under, SrcAddr: d.Local.AsSlice(),
			Port: int(d.Port), GBP: d.GBP, Learning: d.Learning,
		}
	case KindIPIP:
		l = &netlink.Iptun{LinkAttrs: a, Local: d.Local.AsSlice()}
	default:
		l = &netlink.GenericLink{LinkAttrs: a, LinkType: d.Kind}
	}
	err := k.addLink(l, d.Kind)
	if errors.Is(err, unix.EEXIST) {
		if who := k.like(d); who != "" {
			err = fmt.Errorf("%w: %s", err, who)
		}
	}
	return Wrap("add link "+d.String(), err)
}

// addLink is LinkAdd, with the kernel's answer to an unknown kind made an error that says so.
func (k *Kernel) addLink(l netlink.Link, kind string) error {
	err := k.h.LinkAdd(l)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: %w", NoDriver(kind), err)
	}
	return err
}

// probeDevice is the name of the device that Probe makes. It stays only if the process is killed meanwhile.
// It is never up, so that its port is not opened.
const (
	probeDevice = "weft-probe"
	probeVNI    = 1<<24 - 1
	probePort   = 1
)

// Probe asks the kernel whether it can make devices of a kind, by making one for a moment. The error wraps
// NoDriver if it cannot. Loading the module ipip, which that may do, makes a device tunl0 in each
// namespace.
func (k *Kernel) Probe(kind string) error {
	if slices.Contains(k.Lacks, kind) {
		return NoDriver(kind)
	}
	a := netlink.NewLinkAttrs()
	a.Name = probeDevice
	var l netlink.Link = &netlink.GenericLink{LinkAttrs: a, LinkType: kind}
	if kind == KindVXLAN {
		l = &netlink.Vxlan{LinkAttrs: a, VxlanId: probeVNI, Port: probePort}
	}
	err := k.addLink(l, kind)
	if errors.Is(err, unix.EEXIST) { // of a process that was killed meanwhile, or somebody else's
		if there, bad := k.Device(probeDevice); bad == nil && !there.IsProbe() {
			return fmt.Errorf("probe for %s: link %s is another program's: rename it", kind, probeDevice)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("probe for %s: %w", kind, err)
	}
	return k.DelLink(probeDevice)
}

// ProbeAside is Probe in a network namespace that is made for it, so that the host's is not touched.
func ProbeAside(kind string) error {
	return ownthread.InNew(func() error {
		k, err := OpenKernel()
		if err != nil {
			return err
		}
		return errors.Join(k.Probe(kind), k.Close())
	})
}

// IsProbe reports whether d is the device of Probe, which is never marked: it should be gone at once.
func (d Device) IsProbe() bool {
	switch d.Kind {
	case KindVXLAN:
		return d.Name == probeDevice && d.VNI == probeVNI && d.Port == probePort && !d.Up
	case KindWireGuard, KindIPIP:
		return d.Name == probeDevice && !d.Up
	}
	return false
}

// like names the device in whose place the kernel makes no other, and what to do; "" if there is none.
func (k *Kernel) like(d Device) string {
	ds, _ := k.Devices()
	for _, x := range ds {
		switch {
		case x.Kind != d.Kind:
		case d.Kind == KindVXLAN && x.VNI == d.VNI && x.Port == d.Port:
			return fmt.Sprintf("link %s has VNI %d on port %d: ip link del %s if nothing uses it, or choose "+
				"another VNI", x.Name, d.VNI, d.Port, x.Name)
		case d.Kind == KindIPIP && x.Local == d.Local && !strings.Contains(x.Other, "remote"):
			return fmt.Sprintf("link %s sends from %v to any address: ip link del %s if nothing uses it", x.Name,
				d.Local, x.Name)
		}
	}
	return ""
}

// VTEPsOnPort lists the vxlan devices of a UDP port.
func (k *Kernel) VTEPsOnPort(port uint16) ([]Device, error) {
	ds, err := k.Devices()
	return slices.DeleteFunc(ds, func(d Device) bool { return d.Kind != KindVXLAN || d.Port != port }), err
}

// Remove deletes a device if it is ours or flannel's; else the error says why not.
func (k *Kernel) Remove(d Device, networks []netip.Prefix) error {
	addrs, err := k.linkAddrs(d.Index)
	if err != nil {
		return err
	}
	if why := Strange(d, addrs, networks); why != "" {
		return errors.New(why)
	}
	return k.DelLink(d.Name)
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

// SetDevice changes the named attributes (DeviceChange.Set) to those of d. The error wraps ErrNoLink if it is
// gone.
func (k *Kernel) SetDevice(d Device, names []string) (done int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	l, err := k.link(d.Name)
	if err != nil {
		return 0, err
	}
	var faults []error
	for _, name := range names {
		switch name {
		case "mac":
			err = k.h.LinkSetHardwareAddr(l, hardware(d.MAC))
		case "mtu":
			err = k.h.LinkSetMTU(l, d.MTU)
		case "txqueuelen":
			err = k.h.LinkSetTxQLen(l, d.TxQueueLen)
		case "alias":
			err = k.h.LinkSetAlias(l, d.Alias)
		case "up":
			if err = k.h.LinkSetUp(l); errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w: another program has a socket on UDP port %d: stop it, or choose another Port",
					err, d.Port)
			}
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("set %s of link %s: %w", name, d.Name, err))
			continue
		}
		done++
	}
	return done, errors.Join(faults...)
}

// Settle makes the settings of a device that we make what its family needs: the other family is off, so that
// the kernel sends none of it into the tunnel.
func (k *Kernel) Settle(d Device) error {
	if !d.made() {
		return nil
	}
	six := d.Local.Is6()
	err := k.SetIPv6(d.Name, six)
	if d.Loose && !six {
		err = errors.Join(err, k.Loosen(d.Name))
	}
	return err
}

// linkAddrs are the addresses of one link.
func (k *Kernel) linkAddrs(index int) (out []netip.Prefix, err error) {
	as, err := k.addrs()
	for _, a := range as {
		if a.LinkIndex == index && a.IPNet != nil {
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
