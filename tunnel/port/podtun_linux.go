package port

import (
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// A NamedPort is a port on a network device.
type NamedPort interface {
	Port
	// Name returns the device's name in its own namespace.
	Name() string
}

// PodTUN makes a port from the TUN of a pod. Another process opened the descriptor, and the device may be in
// any namespace, so PodTUN needs no privilege. The port serves every path. If the TUN has a virtio-net header
// (IFF_VNET_HDR), the port moves superpackets with the kernel's offloads, except for those in off. Otherwise
// it moves single packets. It owns fd, also on error. A nil log discards.
//
// The device must have IFF_NO_PI. The kernel does not report this flag; without it the port drops all packets
// as malformed. PodTUN fails if the descriptor is not a TUN's, or if the TUN has several queues, because
// another process may hold the others. The error wraps unix.EBADFD if the device is gone.
func PodTUN(fd int, off OffloadSet, log *slog.Logger) (NamedPort, error) {
	flags, err := tunFlags(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("the descriptor of a pod's TUN: %w", err)
	}
	t, err := TUNFromFD(fd)
	if err != nil {
		return nil, err
	}
	if flags&unix.IFF_VNET_HDR == 0 {
		if err := unix.IoctlSetInt(t.fd, unix.TUNSETOFFLOAD, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("tun %s: TUNSETOFFLOAD 0: %w", t.name, err), t.Close())
		}
		return t, nil
	}
	return offloadTUN(t, off, log)
}

// tunFlags returns the flags of a TUN. It fails if the port could not read packets from the descriptor.
func tunFlags(fd int) (uint16, error) {
	req, err := unix.NewIfreq("")
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, req); errors.Is(err, unix.EBADFD) {
		return 0, fmt.Errorf("its device is gone: %w", err)
	} else if err != nil {
		return 0, fmt.Errorf("it is not a TUN (TUNGETIFF: %w)", err)
	}
	switch flags := req.Uint16(); {
	case flags&unix.IFF_TUN == 0:
		return 0, errors.New("it is a TAP, which carries frames; a TUN is needed (IFF_TUN)")
	case flags&unix.IFF_MULTI_QUEUE != 0:
		return 0, errors.New("the TUN has several queues (IFF_MULTI_QUEUE); it must have one")
	default:
		return flags, nil
	}
}

// offloadTUN makes t, which has a virtio-net header, a port that moves superpackets. It owns t, also on
// error.
func offloadTUN(t *TUN, off OffloadSet, log *slog.Logger) (*OffloadTUN, error) {
	// The size of the header belongs to the device: another process may have set a larger one.
	if err := unix.IoctlSetPointerInt(t.fd, unix.TUNSETVNETHDRSZ, encap.VNetHdrLen); err != nil {
		return nil, errors.Join(fmt.Errorf("tun %s: TUNSETVNETHDRSZ: %w", t.name, err), t.Close())
	}
	o := &OffloadTUN{TUN: t, log: log}
	if o.log == nil {
		o.log = slog.New(slog.DiscardHandler)
	}
	o.probe(off)
	return o, nil
}
