package port

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// aboutRaw is Kept.About of path raw's port.
type aboutRaw struct {
	// Frames is how many packet sockets there are to receive by, and as many to send by; Listening is how many
	// of the first receive.
	Frames    int `json:"frames"`
	Listening int `json:"listening"`
	// Queues is how many were asked for.
	Queues int      `json:"queues"`
	Link   int      `json:"link"` // index
	UDP    aboutUDP `json:"udp"`
	// Sockets is how many descriptors UDP has.
	Sockets int `json:"sockets"`
	// TAP is the name of the device whose descriptor is the last; "" without.
	TAP string `json:"tap,omitempty"`
}

// Keep implements KeepablePort. The caller keeps the filter that withholds the same frames from the UDP
// socket.
func (r *Raw) Keep() (Kept, error) {
	udp, fds, err := r.sockets.keep()
	if err != nil {
		return Kept{}, err
	}
	about := aboutRaw{Frames: len(r.frames.fds), Listening: r.frames.listening, Queues: r.frames.wanted,
		Link: r.frames.link,
		UDP:  udp, Sockets: len(fds), TAP: r.tap.name}
	fds = slices.Concat(r.frames.fds, r.frames.out, fds)
	if r.tap.fd >= 0 {
		fds = append(fds, r.tap.fd)
	}
	return keep(KindRaw, about, fds)
}

// keptRaw is OpenRaw for o.From, of which it takes the descriptors. o.Queues is that of packet sockets.
func keptRaw(o RawOptions) (*Raw, error) {
	r, err := takeRaw(o)
	if err != nil {
		o.From.Close()
		return nil, fmt.Errorf("path raw for %v that was kept: %w", o.Local, err)
	}
	o.From.FDs = nil
	// Peers that were held back are let in, since the process that throttled them is gone.
	if err := r.frames.Hold(nil); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// takeRaw is keptRaw, but that the descriptors are the caller's still where it returns an error.
func takeRaw(o RawOptions) (*Raw, error) {
	var about aboutRaw
	if err := o.From.read(KindRaw, &about); err != nil {
		return nil, err
	}
	fds, queues := o.From.FDs, max(1, o.Queues)
	tapped := 0
	if about.TAP != "" {
		tapped = 1
	}
	switch {
	case about.Frames < 1 || about.Sockets < 1 || len(fds) != 2*about.Frames+about.Sockets+tapped:
		return nil, unfit("there are %d descriptors, and 2*%d+%d+%d are told of", len(fds), about.Frames,
			about.Sockets, tapped)
	case about.Listening < 1 || about.Listening > about.Frames:
		return nil, unfit("%d of %d packet sockets receive", about.Listening, about.Frames)
	case about.Queues != queues:
		return nil, unfit("it was made for %d queues, and %d are wanted", about.Queues, queues)
	case about.Link != o.Link:
		return nil, unfit("it is on the link with index %d, and %d is wanted", about.Link, o.Link)
	}
	in, rest := fds[:about.Frames], fds[about.Frames:]
	out, rest := rest[:about.Frames], rest[about.Frames:]
	for i, fd := range slices.Concat(in, out) {
		if err := fitFrames(fd, o.Link, i < about.Listening); err != nil {
			return nil, err
		}
	}
	one := o.UDPOptions
	one.Queues = 1
	s, err := takeSockets(one, about.UDP, rest[:about.Sockets])
	if err != nil {
		return nil, err
	}
	s.offer(one)
	f := &frames{local: s.local, log: o.logger(), link: o.Link, gro: &s.gro, wanted: queues,
		fds: slices.Clone(in), out: slices.Clone(out), listening: about.Listening}
	f.hops.Store(&hops{})
	for _, fd := range f.fds {
		if err := force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
			return nil, err
		}
	}
	var t *tap
	if about.TAP == "" {
		t = openTAP(o)
	} else {
		t = takeTAP(o, about.TAP, rest[about.Sockets])
	}
	return composeRaw(o, f, t, s), nil
}

// fitFrames says whether fd is a packet socket on the link.
func fitFrames(fd, link int, listening bool) error {
	if err := fitSocket(fd, unix.SOCK_RAW); err != nil {
		return err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return unfit("%v", err)
	}
	a, ok := name.(*unix.SockaddrLinklayer)
	switch {
	case !ok:
		return unfit("a descriptor is no packet socket")
	case a.Ifindex != link: // -1 once the link is gone
		return unfit("a packet socket is on the link with index %d", a.Ifindex)
	case listening && a.Protocol == 0:
		return unfit("a packet socket receives nothing")
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR); err != nil || v != 1 {
		return unfit("a packet socket has no virtio-net header (%v)", err)
	}
	return nil
}

// takeTAP is openTAP with the descriptor of a TAP that was kept. It takes fd over.
func takeTAP(o RawOptions, name string, fd int) *tap {
	err := fitQueue(fd, name, unix.IFF_TAP|unix.IFF_VNET_HDR)
	if err == nil && o.TAP != name {
		err = unfit("it is %s", name)
	}
	if err == nil && o.Off.Has(OffloadTunnel) {
		err = unfit("the offload %v is switched off", OffloadTunnel)
	}
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, encap.VNetTunnelHdrLen)
	}
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tapOffloads)
	}
	if err != nil {
		_ = unix.Close(fd)
		o.logger().Info("device of an earlier weftd is opened anew", "device", name, "cause", err)
		return openTAP(o)
	}
	t := &tap{fd: fd, name: name, log: o.logger()}
	t.offload.set(OffloadTunnel, o.Off, true)
	return t
}
