package wireguard

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// user is a device of this process, of the library's making. Its TUN is persistent: while no process has it
// open, it keeps addresses and routes.
type user struct {
	dev *device.Device
	tun *tunDevice
}

func openUser(name string, mtu int, home, away Inside) (*user, error) {
	t, err := openTUN(name, mtu, home)
	if err != nil {
		return nil, err
	}
	log := &device.Logger{Verbosef: device.DiscardLogf, Errorf: device.DiscardLogf}
	return &user{device.NewDevice(t, bindIn{conn.NewStdNetBind(), away}, log), t}, nil
}

// bindIn is the library's own Bind, which opens its sockets in another namespace: the library opens them on
// whatever thread is at hand.
type bindIn struct {
	conn.Bind
	inside Inside
}

// Open implements conn.Bind.
func (b bindIn) Open(port uint16) (fns []conn.ReceiveFunc, actual uint16, err error) {
	err = b.inside(func() (err error) { fns, actual, err = b.Bind.Open(port); return err })
	return fns, actual, err
}

// lost reports whether the device has ended, as it does when its TUN is gone.
func (u *user) lost() bool {
	select {
	case <-u.dev.Wait():
		return true
	default:
		return false
	}
}

// ConfigureDevice implements control. The sockets are open when it has returned.
func (u *user) ConfigureDevice(_ string, c wgtypes.Config) error {
	if err := u.dev.IpcSet(text(c)); err != nil {
		return withoutText(err)
	}
	return u.dev.Up()
}

// withoutText leaves out of an error of the library's what it could not parse, which may be a secret.
func withoutText(err error) error {
	var cause syscall.Errno
	var refused *device.IPCError
	switch {
	case errors.As(err, &cause):
		return cause
	case errors.As(err, &refused):
		return fmt.Errorf("the device refused its settings with code %d", refused.ErrorCode())
	}
	return errors.New("the device refused its settings")
}

// Device implements control.
func (u *user) Device(string) (*wgtypes.Device, error) {
	var b strings.Builder
	if err := u.dev.IpcGetOperation(&b); err != nil {
		return nil, err
	}
	return parse(b.String())
}

// Close implements control.
func (u *user) Close() error {
	u.dev.Close()
	return nil
}

// openTUN opens the TUN of that name in the namespace of home, with superpackets.
func openTUN(name string, mtu int, home Inside) (*tunDevice, error) {
	fd := -1
	err := home(func() (err error) {
		if fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != nil {
			return fmt.Errorf("open /dev/net/tun: %w: load the module tun, run as root, "+
				"and in a container pass the device in", err)
		}
		return setUpTUN(fd, name)
	})
	if err == nil {
		return newTUN(fd, mtu)
	}
	if fd >= 0 {
		err = errors.Join(err, unix.Close(fd))
	}
	return nil, err
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
