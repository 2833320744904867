package wireguard

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// User is a device in user space: golang.zx2c4.com/wireguard's, with the TUN and the sockets opened here. The TUN is persistent: while no
// process has it, it keeps its addresses and routes, and its queue what is sent there. It is safe for concurrent use.
type User struct {
	name string
	dev  *device.Device
	bind *bind
	tun  *tunDevice
	log  *slog.Logger
	no   refusals

	mu    sync.Mutex // guards what follows
	have  Config
	set   bool // have was set
	ended bool
}

// OpenUser opens the TUN by name, in the namespace of home, and makes a device of it that has no key, port or peers yet, and whose
// sockets will be in the namespace of away. The error wraps unix.EBUSY if another process has the TUN, unix.EINVAL if a device of that
// name is no TUN, unix.EPERM without CAP_NET_ADMIN, and unix.ENOENT where there is no /dev/net/tun.
func OpenUser(name string, mtu int, home, away Inside, log *slog.Logger) (*User, error) {
	fd, err := openTUN(name, home)
	if err != nil {
		return nil, err
	}
	return newUser(name, fd, mtu, newBind(opensIn(away)), log)
}

// newUser makes a device of the TUN fd, which is its own from now on, also beside an error.
func newUser(name string, fd, mtu int, b *bind, log *slog.Logger) (*User, error) {
	t, err := newTUN(fd, mtu)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, errors.Join(err, unix.Close(fd)))
	}
	u := &User{name: name, tun: t, bind: b, log: log}
	u.dev = device.NewDevice(t, u.bind, &device.Logger{Verbosef: u.says, Errorf: u.fault})
	return u, nil
}

// fault logs what the library says went wrong. It has no keys in it but public ones.
func (u *User) fault(format string, args ...any) {
	u.log.Debug("wireguard", "device", u.name, "says", fmt.Sprintf(format, args...))
}

// says counts what is refused of what the library would log.
func (u *User) says(format string, args ...any) { u.no.note(format, args) }

// WrongKeys is how many handshakes came that were for another key than this device's.
func (u *User) WrongKeys() uint64 { return u.no.wrongKeys() }

// Name is the device's name.
func (u *User) Name() string { return u.name }

// Lost reports whether the device has ended by itself: its TUN is gone.
func (u *User) Lost() bool {
	select {
	case <-u.dev.Wait():
		return true
	default:
		return false
	}
}

// Configure makes the device have what c says, and says whether anything was changed. Peers' sessions last where nothing of theirs
// changes. A peer that is new and whom greet names is greeted with a handshake at once, not with the first packet.
func (u *User) Configure(c Config, greet func(PublicKey) bool) (changed bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return false, os.ErrClosed
	}
	u.tun.setMTU(c.MTU)
	if !u.set || u.have.Private != c.Private {
		changed = true
		if err := u.dev.IpcSet("private_key=" + c.Private.Hex() + "\n"); err != nil {
			return changed, errors.New("the private key was not taken") // without what it is
		}
		u.have.Private = c.Private
	}
	if !u.set || u.have.Port != c.Port || u.have.Local4 != c.Local4 || u.have.Local6 != c.Local6 {
		changed = true
		if err := u.listen(c); err != nil {
			return changed, err
		}
	}
	plan := Plan(u.have.Peers, c.Peers)
	if plan.Empty() {
		return changed, nil
	}
	if err := u.dev.IpcSet(plan.text()); err != nil {
		u.have.Peers = nil // what of it was done is not known: all is said again
		return true, errors.Join(errors.New("the peers were not taken"), withoutLine(err))
	}
	u.have.Peers = slices.Clone(c.Peers)
	for _, p := range plan.Set {
		if p.New && greet(p.Key) {
			u.greet(p.Key)
		}
	}
	return true, nil
}

// withoutLine leaves out of an error of the library's what it could not parse, which may be a secret.
func withoutLine(err error) error {
	var e *device.IPCError
	if errors.As(err, &e) {
		return fmt.Errorf("the device refused with code %d", e.ErrorCode())
	}
	return err
}

// listen opens the sockets. mu is held.
func (u *User) listen(c Config) error {
	u.bind.at(c.Local4, c.Local6)
	u.set = false                                                                 // whatever happens, until it has worked
	if err := u.dev.IpcSet(fmt.Sprintf("listen_port=%d\n", c.Port)); err != nil { // while the device is down this opens nothing
		return fmt.Errorf("device %s: UDP port %d: %w", u.name, c.Port, causeOf(err))
	}
	if err := u.dev.Up(); err != nil {
		return fmt.Errorf("device %s: UDP port %d: %w", u.name, c.Port, err)
	}
	u.have.Port, u.have.Local4, u.have.Local6, u.set = c.Port, c.Local4, c.Local6, true
	return nil
}

// causeOf is what an error of the configuration protocol is about.
func causeOf(err error) error {
	var e *device.IPCError
	if errors.As(err, &e) {
		if cause := errors.Unwrap(e.Unwrap()); cause != nil {
			return cause
		}
	}
	return err
}

// greet begins a handshake.
func (u *User) greet(k PublicKey) {
	if p := u.dev.LookupPeer(device.NoisePublicKey(k)); p != nil {
		p.SendKeepalive()
		p.SendStagedPackets()
	}
}

// Rekey begins a new handshake with a peer whose session may be in use; false if there is no such peer. The library lets one handshake
// begin in five seconds.
func (u *User) Rekey(k PublicKey) bool {
	p := u.dev.LookupPeer(device.NoisePublicKey(k))
	return p != nil && p.SendHandshakeInitiation(false) == nil
}

// Peers is what the device knows of its peers, by key.
func (u *User) Peers() ([]PeerState, error) {
	var b strings.Builder
	if err := u.dev.IpcGetOperation(&b); err != nil {
		return nil, err
	}
	ps, err := parseState(b.String())
	for i := range ps {
		ps[i].Refused = u.no.of(ps[i].Endpoint.Addr())
	}
	return ps, err
}

// Close ends the device. The TUN stays, without anybody who reads it.
func (u *User) Close() error {
	u.mu.Lock()
	u.ended = true
	u.mu.Unlock()
	u.dev.Close()
	return nil
}

// End is Close: the sessions are this process's own.
func (u *User) End() error { return u.Close() }

// tunDevice is the library's TUN but for what it would ask the namespace of whoever calls: the MTU, and whether the device is up.
type tunDevice struct {
	tun.Device
	events chan tun.Event
	mtu    atomic.Int32
	mu     sync.Mutex // guards sending to events, and what follows
	shut   bool
}

// openTUN opens the TUN of that name in the namespace of home, with superpackets.
func openTUN(name string, home Inside) (fd int, err error) {
	err = home(func() error {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open /dev/net/tun: %w: load the module tun, run as root, and in a container pass the device in", err)
		}
		if err := setUpTUN(fd, name); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		return nil
	})
	if err != nil {
		return -1, fmt.Errorf("device %s: %w", name, err)
	}
	return fd, nil
}

func setUpTUN(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return nil
}

// newTUN makes the library's TUN of fd.
func newTUN(fd, mtu int) (*tunDevice, error) {
	d, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, err
	}
	t := &tunDevice{Device: d, events: make(chan tun.Event, 1)}
	t.mtu.Store(int32(mtu))
	return t, nil
}

// MTU implements tun.Device.
func (t *tunDevice) MTU() (int, error) { return int(t.mtu.Load()), nil }

func (t *tunDevice) setMTU(mtu int) {
	if int(t.mtu.Swap(int32(mtu))) == mtu {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return
	}
	select {
	case t.events <- tun.EventMTUUpdate:
	default: // one that is not read yet says the same
	}
}

// Events implements tun.Device.
func (t *tunDevice) Events() <-chan tun.Event { return t.events }

// Close implements tun.Device.
func (t *tunDevice) Close() error {
	t.mu.Lock()
	if !t.shut {
		close(t.events)
	}
	t.shut = true
	t.mu.Unlock()
	return t.Device.Close()
}
