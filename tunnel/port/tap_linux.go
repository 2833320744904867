package port

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// tunTunnel has the TUNSETOFFLOAD flags for UDP tunnel GSO with and without an outer checksum
// (linux/if_tun.h, Linux 6.17).
const tunTunnel = 0x80 | 0x100

// tapOffloads has all offloads of the TAP.
const tapOffloads = tunCsum | tunTSO | tunTSOECN | tunUSO | tunTunnel

// tap is the device that sends superpackets whole. Only a TAP accepts frames that describe their inner
// headers. Without a device fd is -1 and name is empty. tap is safe for concurrent use.
type tap struct {
	fd      int
	name    string
	log     *slog.Logger
	use     atomic.Bool // the owner has set up the device
	offload OffloadSwitch
}

// openTAP opens the device if it is requested and the kernel supports tunnel GSO.
func openTAP(o RawOptions) *tap {
	t := &tap{fd: -1, log: o.logger()}
	var err error
	if o.TAP != "" && !o.Off.Has(OffloadTunnel) {
		if err = t.open(o.TAP); err != nil {
			t.log.Info("segmenting superpackets before they are sent", "event", EventOutletChosen, "offload",
				OffloadTunnel.String(), "cause", err)
		}
	}
	t.offload.set(OffloadTunnel, o.Off, t.fd >= 0)
	return t
}

func (t *tap) open(name string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	made, err := setUpTAP(fd, name)
	if err != nil {
		_ = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 0) // remove an earlier device that this kernel cannot use
		_ = unix.Close(fd)
		return fmt.Errorf("tap %s: %w", name, err)
	}
	t.fd, t.name = fd, made
	return nil
}

// setUpTAP attaches fd to the TAP of that name or template, and returns the name.
func setUpTAP(fd int, name string) (string, error) {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return "", err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return "", fmt.Errorf("TUNSETIFF: %w", err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, encap.VNetTunnelHdrLen); err != nil {
		return "", fmt.Errorf("TUNSETVNETHDRSZ: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tapOffloads); err != nil {
		return "", fmt.Errorf("TUNSETOFFLOAD: %w (tunnel GSO is since Linux 6.17)", err)
	}
	// The device stays, idle: removing it takes the kernel some 20 ms, which would delay a restart.
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return "", fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return req.Name(), nil
}

// accepts reports whether the device can send p. A packet of one segment is no superpacket, and a TAP on its
// path would reject it.
func (t *tap) accepts(p *Packet) bool {
	return t.use.Load() && t.offload.On() && p.Partial && p.Segments > 1 && p.off == Headroom
}

// send writes the frame of p, with its virtio-net header. It returns false if the device did not accept it,
// and p must be segmented. Otherwise p has its verdict, if that is not Delivered.
func (t *tap) send(frame []byte, p *Packet) bool {
	switch errno := write(t.fd, frame); errno {
	case 0:
		t.offload.used(p.Segments)
	case unix.EIO, unix.EBADFD: // down or deleted: segment packets until it works again
		return false
	case unix.EINVAL:
		t.offload.lose(t.log, t.name, errno)
		return false
	default:
		p.verdictOf(errno)
	}
	return true
}

func (t *tap) close() error {
	if t.fd < 0 {
		return nil
	}
	return unix.Close(t.fd)
}
