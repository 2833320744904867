package port

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kept is a port that outlives its engine or process: descriptors, and a description from which to rebuild
// the port. Duplicates of the descriptors share the port's queues and the packets in them. If several engines
// have the same port, only one may read it (Engine.Pause).
//
// The JSON form has all but the descriptors.
type Kept struct {
	// Kind is the kind of port. Version is that of About and of the order of FDs; a port of another version is
	// not adopted.
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	// About depends on Kind.
	About json.RawMessage `json:"about,omitempty"`
	// FDs are the descriptors, in the order that Kind documents.
	FDs []int `json:"-"`
}

// KeepablePort is a Port that can outlive its engine.
type KeepablePort interface {
	Port
	// Keep describes the port. The caller owns the descriptors, which are duplicates.
	Keep() (Kept, error)
}

// The values of Kept.Kind.
const (
	KindTUN     = "tun"     // OpenTUN: one descriptor per queue
	KindOffload = "offload" // OpenOffloadTUN: the same
	KindUDP     = "udp"     // ListenUDP: one socket
	KindSockets = "sockets" // ListenOffload: the sockets that share the port, then the lanes' sockets
	KindIPIP    = "ipip"    // ListenIPIP: one raw socket
	// OpenRaw: packet sockets for receiving, those for sending, the sockets of KindSockets, and the TAP if there
	// is one
	KindRaw = "raw"
)

// keptVersion is Kept.Version of every kind. Increment it when About or FDs change their meaning, and when
// the filter of packet sockets changes: the filter must agree with the ingress filter of the other version.
const keptVersion = 1

// ErrUnfit is wrapped by errors about a Kept that differs from the requested port. The caller then opens
// another port.
var ErrUnfit = errors.New("the kept port does not fit")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}

// Close closes the descriptors. Further calls do nothing.
func (k *Kept) Close() {
	closeFDs(k.FDs)
	k.FDs = nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Dup returns a copy of k with duplicated descriptors, which the caller owns.
func (k Kept) Dup() (Kept, error) {
	fds := k.FDs
	k.FDs = nil
	for _, fd := range fds {
		d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			k.Close()
			return Kept{}, fmt.Errorf("duplicate the descriptors of a port of kind %s: %w", k.Kind, err)
		}
		k.FDs = append(k.FDs, d)
	}
	return k, nil
}

// keep returns a Kept with duplicates of fds.
func keep(kind string, about any, fds []int) (Kept, error) {
	b, err := json.Marshal(about)
	if err != nil {
		return Kept{}, fmt.Errorf("describe a port of kind %s: %w", kind, err)
	}
	return Kept{Kind: kind, Version: keptVersion, About: b, FDs: fds}.Dup()
}

// decode checks k's kind and version, and decodes About into about.
func (k *Kept) decode(kind string, about any) error {
	switch {
	case k.Kind != kind:
		return unfit("its kind is %s, not %s", k.Kind, kind)
	case k.Version != keptVersion:
		return unfit("its version is %d, not %d", k.Version, keptVersion)
	}
	if err := json.Unmarshal(k.About, about); err != nil {
		return unfit("%v", err)
	}
	return nil
}

// adopt returns the port that open makes from the descriptors of k, which owns them no longer. On error adopt
// closes them.
func adopt[P any](k *Kept, open func() (P, error)) (P, error) {
	p, err := open()
	if err != nil {
		k.Close()
		return p, fmt.Errorf("kept port of kind %s: %w", k.Kind, err)
	}
	k.FDs = nil
	return p, nil
}

// Discard drops the packets in the port's queues, and returns the number of reads that took. Nobody else may
// read the port meanwhile.
func (k *Kept) Discard() (reads int) {
	buf := make([]byte, MaxPacket)
	for _, fd := range k.FDs {
		if unix.SetNonblock(fd, true) != nil {
			continue
		}
		for range maxDiscard { // sockets return queued errors, too
			_, err := unix.Read(fd, buf)
			if err == nil {
				reads++
			} else if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBADFD) || errors.Is(err, unix.EIO) ||
				errors.Is(err, unix.EINVAL) {
				break
			}
		}
	}
	return reads
}

// maxDiscard bounds the reads from one queue, since packets may arrive faster than they are discarded.
const maxDiscard = 1 << 16
