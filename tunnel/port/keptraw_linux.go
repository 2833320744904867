package port

import (
	"slices"

	"golang.org/x/sys/unix"

	"weft/encap"
)

// aboutRaw is Kept.About of kind KindRaw.
type aboutRaw struct {
	// Frames is the number of packet sockets for receiving, and equally of those for sending. Listening is how
	// many of the former receive.
	Frames    int `json:"frames"`
	Listening int `json:"listening"`
	// Queues is the number of queues requested.
	Queues int      `json:"queues"`
	Link   int      `json:"link"` // interface index
	UDP    aboutUDP `json:"udp"`
	// Sockets is the number of descriptors of UDP.
	Sockets int `json:"sockets"`
	// TAP is the name of the device of the last descriptor, or "" if there is none.
	TAP string `json:"tap,omitempty"`
}

// Keep implements KeepablePort. The caller keeps the ingress filter that drops the same frames before the UDP
// socket.
func (r *Raw) Keep() (Kept, error) {
	udp, fds, err := r.sockets.keep()
	if err != nil {
		return Kept{}, err
	}
	about := aboutRaw{Frames: len(r.frames.fds), Listening: r.frames.listening, Queues: r.frames.requested,
		Link: r.frames.link,
		UDP:  udp, Sockets: len(fds), TAP: r.tap.name}
	fds = slices.Concat(r.frames.fds, r.frames.out, fds)
	if r.tap.fd >= 0 {
		fds = append(fds, r.tap.fd)
	}
	return keep(KindRaw, about, fds)
}

// keptRaw is OpenRaw from o.From. o.Queues is the number of packet sockets.
func keptRaw(o RawOptions) (*Raw, error) {
	return adopt(o.From, func() (*Raw, error) { return adoptRaw(o) })
}

// adoptRaw is keptRaw, but on error o.From still owns the descriptors.
func adoptRaw(o RawOptions) (*Raw, error) {
	var about aboutRaw
	if err := o.From.decode(KindRaw, &about); err != nil {
		return nil, err
	}
	fds, queues := o.From.FDs, max(1, o.Queues)
	tapped := 0
	if about.TAP != "" {
		tapped = 1
	}
	switch {
	case about.Frames < 1 || about.Sockets < 1 || len(fds) != 2*about.Frames+about.Sockets+tapped:
		return nil, unfit("there are %d descriptors, not 2*%d+%d+%d", len(fds), about.Frames,
			about.Sockets, tapped)
	case about.Listening < 1 || about.Listening > about.Frames:
		return nil, unfit("%d of %d packet sockets receive", about.Listening, about.Frames)
	case about.Queues != queues:
		return nil, unfit("it has %d queues, not %d", about.Queues, queues)
	case about.Link != o.Link:
		return nil, unfit("its link has index %d, not %d", about.Link, o.Link)
	}
	in, rest := fds[:about.Frames], fds[about.Frames:]
	out, rest := rest[:about.Frames], rest[about.Frames:]
	for i, fd := range slices.Concat(in, out) {
		if err := checkFrames(fd, o.Link, i < about.Listening); err != nil {
			return nil, err
		}
	}
	one := o.UDPOptions
	one.Queues = 1
	s, err := adoptSockets(one, about.UDP, rest[:about.Sockets])
	if err != nil {
		return nil, err
	}
	s.applyOptions(one)
	f := &frames{local: s.local, log: o.logger(), link: o.Link, gro: &s.gro, requested: queues,
		fds: slices.Clone(in), out: slices.Clone(out), listening: about.Listening}
	f.hops.Store(&hops{})
	for _, fd := range f.fds {
		if err := force(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF); err != nil {
			return nil, err
		}
	}
	// The process that throttled peers is gone.
	if err := f.Throttle(nil); err != nil {
		return nil, err
	}
	var t *tap
	if about.TAP == "" {
		t = openTAP(o)
	} else {
		t = adoptTAP(o, about.TAP, rest[about.Sockets])
	}
	return composeRaw(o, f, t, s), nil
}

// checkFrames checks that fd is a packet socket on the link.
func checkFrames(fd, link int, listening bool) error {
	if err := checkSocket(fd, unix.SOCK_RAW); err != nil {
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
		return unfit("the link of a packet socket has index %d", a.Ifindex)
	case listening && a.Protocol == 0:
		return unfit("a packet socket receives nothing")
	}
	if v, err := unix.GetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR); err != nil || v != 1 {
		return unfit("a packet socket has no virtio-net header (%v)", err)
	}
	return nil
}

// adoptTAP is openTAP with the descriptor of a kept TAP. It owns fd.
func adoptTAP(o RawOptions, name string, fd int) *tap {
	err := checkQueue(fd, name, unix.IFF_TAP|unix.IFF_VNET_HDR)
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
		o.logger().Info("reopening the device of an earlier weftd", "device", name, "cause", err)
		return openTAP(o)
	}
	t := &tap{fd: fd, name: name, log: o.logger()}
	t.offload.set(OffloadTunnel, o.Off, true)
	return t
}
