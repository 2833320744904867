package port

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// tunTunnel is UDP tunnel GSO, with and without outer checksum, of TUNSETOFFLOAD
// (linux/if_tun.h, Linux 6.17).
const tunTunnel = 0x80 | 0x100

// tapOffloads are all that a TAP of ours has.
const tapOffloads = tunCsum | tunTSO | tunTSOECN | tunUSO | tunTunnel

// tap is the device through which superpackets leave whole: of all that a process can write
// to, only a TAP takes a frame that says where its inner headers are. Without a device fd is -1 and
// name is empty. It is safe for concurrent use.
type tap struct {
	fd      int
	name    string
	log     *slog.Logger
	use     atomic.Bool // the owner of the device has set it up
	offload OffloadSwitch
}

// openTAP opens the device, if one is wanted and the kernel has what it takes.
func openTAP(o RawOptions) *tap {
	t := &tap{fd: -1, log: o.logger()}
	var err error
	if o.TAP != "" && !o.Off.Has(OffloadTunnel) {
		if err = t.open(o.TAP); err != nil {
			t.log.Info("superpackets are cut before they leave", "event", EventOutletChosen, "offload",
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
		_ = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 0) // one of an earlier process that this kernel cannot use
		_ = unix.Close(fd)
		return fmt.Errorf("tap %s: %w", name, err)
	}
	t.fd, t.name = fd, made
	return nil
}

// setUpTAP makes fd the TAP of that name, or template of a name, and returns its name.
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
	// To unmake a device takes the kernel some 20 ms, and so a restart would: it stays, idle.
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return "", fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return req.Name(), nil
}

// takes says whether p can leave by the device. A packet of one segment is no superpacket, and a TAP that
// it met on its path would refuse it.
func (t *tap) takes(p *Packet) bool {
	return t.use.Load() && t.offload.On() && p.Partial && p.Segments > 1 && p.off == Headroom
}

// send writes a frame that stands for p, with its virtio-net header. It is false if the device did not take
// it: p is to be cut then. Otherwise p has its verdict, if that is another than delivered.
func (t *tap) send(frame []byte, p *Packet) bool {
	switch errno := write(t.fd, frame); errno {
	case 0:
		t.offload.used(p.Segments)
	case unix.EIO, unix.EBADFD: // it is down or deleted: packets are cut until it is there again
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
