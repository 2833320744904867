package tunnel

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// tunTunnel is UDP tunnel GSO, with and without outer checksum, of TUNSETOFFLOAD
// (linux/if_tun.h, Linux 6.17).
const tunTunnel = 0x80 | 0x100

// tap is the device through which superpackets leave whole: of all that a process can write
// to, only a TAP takes a frame that says where its inner headers are.
type tap struct {
	fd   int
	name string
	use  atomic.Bool
}

// openTAP opens the device, if one is wanted and the kernel has what it takes.
func (r *Raw) openTAP(o RawOptions) {
	if o.TAP == "" || o.Off.Has(OffloadTunnel) {
		r.tunnel.set(OffloadTunnel, o.Off, false)
		return
	}
	t, err := newTAP(o.TAP)
	if err != nil {
		r.log.Info("superpackets are cut before they leave", "offload", OffloadTunnel.String(), "cause", err)
	}
	r.tap = t
	r.tunnel.set(OffloadTunnel, o.Off, err == nil)
}

func newTAP(name string) (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	t := &tap{fd: fd}
	if err := t.setUp(name); err != nil {
		_ = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 0) // one of an earlier process that this kernel cannot use
		_ = t.close()
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	return t, nil
}

func (t *tap) setUp(name string) error {
	req, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(t.fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	t.name = req.Name()
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETVNETHDRSZ, encap.VNetTunnelHdrLen); err != nil {
		return fmt.Errorf("TUNSETVNETHDRSZ: %w", err)
	}
	if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, tunCsum|tunTSO|tunTSOECN|tunUSO|tunTunnel); err != nil {
		return fmt.Errorf("TUNSETOFFLOAD: %w (tunnel GSO is since Linux 6.17)", err)
	}
	// To unmake a device takes the kernel some 20 ms, and so a restart would: it stays, idle.
	if err := unix.IoctlSetInt(t.fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("TUNSETPERSIST: %w", err)
	}
	return nil
}

func (t *tap) close() error { return unix.Close(t.fd) }

// TAP is the name of the device for tunnel GSO, "" if there is none: none was asked for,
// or the kernel has no tunnel GSO for TAPs (before Linux 6.17).
func (r *Raw) TAP() string {
	if r.tap == nil {
		return ""
	}
	return r.tap.name
}

// UseTAP has superpackets leave by the TAP from now on, or no longer. The caller has made its
// ingress lead to the underlay's egress.
func (r *Raw) UseTAP(use bool) {
	if r.tap != nil {
		r.tap.use.Store(use)
	}
}
