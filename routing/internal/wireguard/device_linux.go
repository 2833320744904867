package wireguard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Inside does something in a network namespace, as kernel.Kernel.Do does.
type Inside func(f func() error) error

// control tells and asks a device: *wgctrl.Client one of the kernel's, *user one of this process.
type control interface {
	ConfigureDevice(name string, c wgtypes.Config) error
	Device(name string) (*wgtypes.Device, error)
	Close() error
}

// Device is one device. It is safe for concurrent use.
type Device struct {
	name    string
	control control
	user    *user // nil for a device of the kernel's

	mu     sync.Mutex // guards what follows
	have   Config
	known  bool                       // the device has what have says
	owners map[netip.Prefix]PublicKey // whose each subnet was; nil before there were peers

	calls calls
}

// OpenKernel takes hold of the kernel's device of that name in the namespace of home. The device, and its
// sessions, outlive this program.
func OpenKernel(name string, home Inside) (*Device, error) {
	var c *wgctrl.Client
	if err := home(func() (err error) { c, err = wgctrl.New(); return err }); err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return &Device{name: name, control: c}, nil
}

// OpenUser makes a device of this process, with its TUN in the namespace of home and its sockets in that of
// away. It has no key, port or peers yet. The error wraps unix.EBUSY if another process has the TUN,
// unix.EINVAL if a link of that name is no TUN, unix.EPERM without CAP_NET_ADMIN, and unix.ENOENT without
// /dev/net/tun.
func OpenUser(name string, mtu int, home, away Inside) (*Device, error) {
	u, err := openUser(name, mtu, home, away)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return &Device{name: name, control: u, user: u}, nil
}

// Lost reports whether the device has ended by itself. A link of the kernel's that is gone is seen elsewhere.
func (d *Device) Lost() bool { return d.user != nil && d.user.lost() }

// Close lets go of a device of the kernel's, and ends one of this process, whose TUN stays.
func (d *Device) Close() error { return d.control.Close() }

// Configure makes the device have what c says. Sessions with peers that stay as they are go on, also those
// that an earlier process began with a device of the kernel's.
//
// A device that is new may be known to each peer by a session that this node has no more, and a peer whose
// key has changed has none that counts: with these a handshake begins at once. With others it begins with the
// first packet.
func (d *Device) Configure(c Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	have := d.have
	if !d.known {
		at, err := d.control.Device(d.name)
		if err != nil {
			return fmt.Errorf("device %s: %w", d.name, err)
		}
		have = Config{}
		for _, p := range at.Peers {
			have.Peers = append(have.Peers, Peer{Key: p.PublicKey})
		}
	}
	if d.user != nil {
		d.user.tun.setMTU(c.MTU)
	}
	next, fresh := difference(have, c, !d.known)
	if !empty(next) {
		if err := d.control.ConfigureDevice(d.name, next); err != nil {
			d.known = false // how much of it was done is not known
			if errors.Is(err, unix.EADDRINUSE) {
				err = fmt.Errorf("%w: another program has UDP port %d: stop it, or name another ListenPort", err, c.Port)
			}
			return fmt.Errorf("device %s: %w", d.name, err)
		}
	}
	d.have, d.known = c, true
	return d.greet(d.own(fresh, c.Peers))
}

// own notes whose each subnet is, and returns those of fresh that a handshake begins with at once.
func (d *Device) own(fresh, all []Peer) (greet []Peer) {
	for _, p := range fresh {
		if d.owners == nil || slices.ContainsFunc(p.AllowedIPs, func(n netip.Prefix) bool {
			before, known := d.owners[n]
			return known && before != p.Key
		}) {
			greet = append(greet, p)
		}
	}
	if d.owners == nil && len(all) == 0 {
		return greet
	}
	d.owners = make(map[netip.Prefix]PublicKey, len(all))
	for _, p := range all {
		for _, n := range p.AllowedIPs {
			d.owners[n] = p.Key
		}
	}
	return greet
}

// greet has handshakes begin. A device begins one when a peer gets a keepalive, which is taken away again.
func (d *Device) greet(ps []Peer) error {
	once, never := time.Second, time.Duration(0)
	var on, off wgtypes.Config
	for _, p := range ps {
		if p.Keepalive == 0 {
			on.Peers = append(on.Peers, wgtypes.PeerConfig{
				PublicKey: p.Key, UpdateOnly: true, PersistentKeepaliveInterval: &once})
			off.Peers = append(off.Peers, wgtypes.PeerConfig{
				PublicKey: p.Key, UpdateOnly: true, PersistentKeepaliveInterval: &never})
		}
	}
	if len(on.Peers) == 0 {
		return nil
	}
	err := errors.Join(d.control.ConfigureDevice(d.name, on), d.control.ConfigureDevice(d.name, off))
	if err != nil {
		return fmt.Errorf("device %s: begin handshakes: %w", d.name, err)
	}
	return nil
}

// PeerState is what a device knows of one of its peers.
type PeerState struct {
	Key PublicKey
	// Endpoint is where packets for the peer are sent: where the record said, or where it was heard from
	// last.
	Endpoint netip.AddrPort
	// Handshake is when the last handshake was completed; zero for never since the device was made.
	Handshake time.Time
	// Rx and Tx are bytes of datagrams' payloads.
	Rx, Tx     uint64
	AllowedIPs []netip.Prefix
	// InVain is when bytes were last seen to leave for the peer while there was no session; zero if none were
	// since the last one.
	InVain time.Time
}

// Peers is what the device knows of its peers now, by key.
func (d *Device) Peers() ([]PeerState, error) {
	now := time.Now()
	at, err := d.control.Device(d.name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", d.name, err)
	}
	ps := make([]PeerState, 0, len(at.Peers))
	for _, p := range at.Peers {
		s := PeerState{
			Key: p.PublicKey, Handshake: p.LastHandshakeTime,
			Rx: uint64(p.ReceiveBytes), Tx: uint64(p.TransmitBytes),
		}
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
	slices.SortFunc(ps, func(a, b PeerState) int { return compareKeys(a.Key, b.Key) })
	d.calls.note(ps, now)
	return ps, nil
}
