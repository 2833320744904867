package wireguard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// control is how a device of the kernel's is told and asked, as wgctrl.Client does it.
type control interface {
	ConfigureDevice(name string, c wgtypes.Config) error
	Device(name string) (*wgtypes.Device, error)
	Close() error
}

// Kernel is a device of the kernel's, which has been made, and outlives this program with its sessions. It is safe for concurrent use.
type Kernel struct {
	name    string
	control control

	mu   sync.Mutex // guards what follows
	have Config
	set  bool // have was set
}

// OpenKernel takes hold of the device of that name in the namespace of home.
func OpenKernel(name string, home Inside) (*Kernel, error) {
	k := &Kernel{name: name}
	err := home(func() (err error) { k.control, err = wgctrl.New(); return err })
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return k, nil
}

// WrongKeys is unknown of the kernel's device.
func (*Kernel) WrongKeys() uint64 { return 0 }

// Lost reports whether the device has ended by itself. One of the kernel's has not: that its link is gone is seen elsewhere.
func (*Kernel) Lost() bool { return false }

// Configure makes the device have what c says. The first time the peers that the device has from before stay, with their sessions, if they
// are among the wanted ones. A peer that is new to the device and whom greet names is greeted with a handshake at once, not with the first
// packet, if the device is up.
func (k *Kernel) Configure(c Config, greet func(PublicKey) bool) (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	have := k.have
	if !k.set {
		d, err := k.control.Device(k.name)
		if err != nil {
			return false, fmt.Errorf("device %s: %w", k.name, err)
		}
		have = known(d)
	}
	next, changed := kernelConfig(have, c, !k.set)
	if !changed {
		return false, nil
	}
	if err := k.control.ConfigureDevice(k.name, next); err != nil {
		k.set = false // what of it was done is not known
		return true, fmt.Errorf("device %s: %w%s", k.name, err, portTaken(err, c.Port))
	}
	k.have, k.set = c, true
	return true, k.greet(Plan(have.Peers, c.Peers), greet)
}

// greet has the kernel begin a handshake with peers that are new. It begins one when a peer gets a keepalive, which is taken away again.
func (k *Kernel) greet(plan Changes, greet func(PublicKey) bool) error {
	var on, off wgtypes.Config
	once, none := time.Second, time.Duration(0)
	for _, p := range plan.Set {
		if p.New && p.Keepalive == 0 && greet(p.Key) {
			on.Peers = append(on.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: true, PersistentKeepaliveInterval: &once})
			off.Peers = append(off.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(p.Key), UpdateOnly: true, PersistentKeepaliveInterval: &none})
		}
	}
	if len(on.Peers) == 0 {
		return nil
	}
	if err := errors.Join(k.control.ConfigureDevice(k.name, on), k.control.ConfigureDevice(k.name, off)); err != nil {
		return fmt.Errorf("device %s: begin handshakes: %w", k.name, err)
	}
	return nil
}

// portTaken says what an error means that is the port's.
func portTaken(err error, port uint16) string {
	if errors.Is(err, unix.EADDRINUSE) {
		return fmt.Sprintf(": another program has UDP port %d: stop it, or name another ListenPort", port)
	}
	return ""
}

// known is what counts of a device that an earlier process configured: whose sessions it has. All else is said anew.
func known(d *wgtypes.Device) (c Config) {
	for _, p := range d.Peers {
		c.Peers = append(c.Peers, Peer{Key: PublicKey(p.PublicKey)})
	}
	return c
}

// kernelConfig is what leads from have to want. first says that key and port are said, whatever have has. It is pure.
func kernelConfig(have, want Config, first bool) (next wgtypes.Config, changed bool) {
	if first || have.Private != want.Private {
		key := wgtypes.Key(want.Private.bytes())
		next.PrivateKey, changed = &key, true
	}
	if first || have.Port != want.Port {
		port := int(want.Port)
		next.ListenPort, changed = &port, true
	}
	plan := Plan(have.Peers, want.Peers)
	for _, k := range plan.Remove {
		next.Peers = append(next.Peers, wgtypes.PeerConfig{PublicKey: wgtypes.Key(k), Remove: true})
	}
	for _, p := range plan.Set {
		preshared, keepalive := wgtypes.Key(p.Preshared.bytes()), time.Duration(p.Keepalive)*time.Second
		c := wgtypes.PeerConfig{
			PublicKey: wgtypes.Key(p.Key), PresharedKey: &preshared, PersistentKeepaliveInterval: &keepalive, ReplaceAllowedIPs: true,
		}
		if p.Move && p.Endpoint.IsValid() {
			c.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
		for _, a := range p.AllowedIPs {
			c.AllowedIPs = append(c.AllowedIPs, net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
		}
		next.Peers = append(next.Peers, c)
	}
	return next, changed || !plan.Empty()
}

// Peers is what the device knows of its peers, by key.
func (k *Kernel) Peers() ([]PeerState, error) {
	d, err := k.control.Device(k.name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", k.name, err)
	}
	var ps []PeerState
	for _, p := range d.Peers {
		s := PeerState{Key: PublicKey(p.PublicKey), Handshake: p.LastHandshakeTime, Rx: uint64(p.ReceiveBytes), Tx: uint64(p.TransmitBytes)}
		if p.Endpoint != nil {
			a := p.Endpoint.AddrPort()
			s.Endpoint = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		}
		for _, n := range p.AllowedIPs {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				bits, _ := n.Mask.Size()
				s.AllowedIPs = append(s.AllowedIPs, netip.PrefixFrom(a, bits))
			}
		}
		ps = append(ps, s)
	}
	return sorted(ps), nil
}

// Close lets go of the device, which stays.
func (k *Kernel) Close() error { return k.control.Close() }

// End is Close: a device of the kernel's is ended by removing it.
func (k *Kernel) End() error { return k.Close() }
