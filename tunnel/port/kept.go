package port

import (
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kept is a port that outlives its engine, and the process: its descriptors, and the description that makes a
// port of them again. Duplicates of the descriptors keep the port's queues and the packets in them. Of
// several engines that have the same port, only one may read it (Engine.Pause).
//
// Its JSON form is everything but the descriptors.
type Kept struct {
	// Kind is the port's, and Version the one of About and of the order of FDs: a port of another is not taken
	// up.
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	// About is for the Kind alone.
	About json.RawMessage `json:"about,omitempty"`
	// FDs are the descriptors, in the order that belongs to the Kind.
	FDs []int `json:"-"`
}

// KeepablePort is a Port that can outlive its engine.
type KeepablePort interface {
	Port
	// Keep describes the port. The descriptors are duplicates, and the caller's.
	Keep() (Kept, error)
}

// The kinds.
const (
	KindTUN     = "tun"     // OpenTUN: a descriptor for each queue
	KindOffload = "offload" // OpenOffloadTUN: the same
	KindUDP     = "udp"     // ListenUDP: one socket
	KindSockets = "sockets" // ListenOffload: the sockets that share the port, then those of the lanes
	KindIPIP    = "ipip"    // ListenIPIP: one raw socket
	// OpenRaw: the packet sockets in, those out, what KindSockets has, the TAP if there is one
	KindRaw = "raw"
)

// keptVersion is the Version of every kind. It is raised when About or FDs change their meaning, and also
// when the filter of packet sockets does: that has to agree with the rule that another version has made.
const keptVersion = 1

// ErrUnfit is wrapped by errors about a Kept that differs from the port that is wanted now. The caller opens
// another port.
var ErrUnfit = errors.New("what was kept does not fit")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}

// Close closes the descriptors. It may be called again.
func (k *Kept) Close() {
	closeFDs(k.FDs)
	k.FDs = nil
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Dup returns a copy of k with duplicates of its descriptors, which the caller closes.
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

// keep is a Kept with duplicates of fds.
func keep(kind string, about any, fds []int) (Kept, error) {
	b, err := json.Marshal(about)
	if err != nil {
		return Kept{}, fmt.Errorf("describe a port of kind %s: %w", kind, err)
	}
	return Kept{Kind: kind, Version: keptVersion, About: b, FDs: fds}.Dup()
}

// read takes what is known of k, which shall be of a kind, into about.
func (k *Kept) read(kind string, about any) error {
	switch {
	case k.Kind != kind:
		return unfit("it is of kind %s, and %s is wanted", k.Kind, kind)
	case k.Version != keptVersion:
		return unfit("it is of version %d, and this is version %d", k.Version, keptVersion)
	}
	if err := json.Unmarshal(k.About, about); err != nil {
		return unfit("%v", err)
	}
	return nil
}

// Discard drops the packets that wait in the port's queues, and returns the number of reads that this took.
// Nobody else may read the port meanwhile.
func (k *Kept) Discard() (reads int) {
	buf := make([]byte, MaxPacket)
	for _, fd := range k.FDs {
		if unix.SetNonblock(fd, true) != nil {
			continue
		}
		for range discardMost { // sockets have errors to read, too
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

// discardMost bounds how much is taken out of one queue: somebody may send faster than it is read.
const discardMost = 1 << 16
