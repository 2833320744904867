package kernel

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/encap"
)

// EtherInfo is what one has to know of a link to send frames on it.
type EtherInfo struct {
	Name       string
	Index, MTU int
	MAC        encap.MAC
	Carrier    bool // without, the kernel drops what is sent there, and says nothing
}

// Ether looks up a link by name. The error says why frames cannot be sent there. Path raw works on
// Ethernet devices, VLANs, bonds, bridges, macvlans and veths included: the packet socket is bound to
// the device that has the address, and the kernel takes care of whatever is below it.
func (k *Kernel) Ether(name string) (EtherInfo, error) {
	l, err := k.link(name)
	if err != nil {
		return EtherInfo{}, err
	}
	a := l.Attrs()
	if a.EncapType != "ether" || len(a.HardwareAddr) != len(encap.MAC{}) {
		return EtherInfo{}, fmt.Errorf("link %s is %s, not Ethernet", name, a.EncapType)
	}
	return EtherInfo{Name: name, Index: a.Index, MTU: a.MTU, MAC: encap.MAC(a.HardwareAddr),
		Carrier: a.RawFlags&unix.IFF_LOWER_UP != 0}, nil
}

// RawObstacle says why path raw is not possible for local on the link, and returns nil if it is. It
// tries every piece, and leaves nothing behind.
func (k *Kernel) RawObstacle(link string, local netip.Addr) error {
	if _, err := k.Ether(link); err != nil {
		return err
	}
	if err := k.ProbeFrames(); err != nil {
		return err
	}
	// No datagram has port 0, so the rule drops nothing.
	i, err := k.OpenIngress(link, netip.AddrPortFrom(local, 0))
	if err != nil {
		return err
	}
	return i.Close()
}

// ErrNoRuns says that packet sockets of this kernel carry no runs of UDP datagrams. Linux before 6.2 refuses
// to send one, and drops one that a peer's kernel, or a device here, has joined.
var ErrNoRuns = errors.New("packet sockets of this kernel carry no runs of UDP datagrams " +
	"(VIRTIO_NET_HDR_GSO_UDP_L4, Linux 6.2), " +
	"so that bulk would be sent one by one, and lost where it arrives joined")

// ProbeFrames says why packet sockets cannot send and receive what path raw does: it sends a run of datagrams
// by the loopback device. The IP stack drops the run, since its link address is nobody's.
func (k *Kernel) ProbeFrames() error {
	kind := cmp.Or(k.RunKind, encap.VNetGSOUDPL4)
	return k.Do(func() error {
		lo, err := net.InterfaceByName("lo")
		if err != nil {
			return fmt.Errorf("loopback device: %w", err)
		}
		mac := encap.MAC{2}
		_, _ = rand.Read(mac[1:]) // it does not fail
		in, err := openProbeSocket()
		if err != nil {
			return err
		}
		defer in.close()
		out, err := openProbeSocket()
		if err != nil {
			return err
		}
		defer out.close()
		err = errors.Join(in.only(mac), in.bind(lo.Index, unix.ETH_P_ALL), out.bind(lo.Index, 0))
		if err != nil {
			return fmt.Errorf("packet socket on the loopback device: %w", err)
		}
		run, err := probeRun(mac, kind)
		if err != nil {
			return err
		}
		switch _, err := unix.Write(int(out), run); {
		case errors.Is(err, unix.EINVAL):
			return ErrNoRuns
		case errors.Is(err, unix.ENETDOWN):
			return errors.New("whether packet sockets carry runs of datagrams is not known, since the loopback " +
				"device is down: ip link set lo up")
		case err != nil:
			return fmt.Errorf("send a run of datagrams by the loopback device: %w", err)
		}
		// A copy of the frame is there when the send returns.
		switch _, err := unix.Read(int(in), make([]byte, 2*len(run))); {
		case errors.Is(err, unix.EINVAL):
			return ErrNoRuns
		case err != nil:
			return fmt.Errorf("receive a run of datagrams by the loopback device: %w", err)
		}
		return nil
	})
}

// probeRun is a frame to mac with a run of two datagrams, behind its virtio-net header of that kind.
func probeRun(mac encap.MAC, kind uint8) ([]byte, error) {
	const payload = 8
	nobody := netip.MustParseAddrPort("192.0.2.1:9") // of documents (RFC 5737), and the port discard
	t, err := encap.NewFrameTemplate(encap.MAC{}, mac, nobody, nobody)
	if err != nil {
		return nil, err
	}
	b := make([]byte, encap.VNetHdrLen+t.Len()+2*payload)
	encap.VNetHdr{Flags: encap.VNetNeedsCsum, GSOType: kind, HdrLen: uint16(t.Len()), GSOSize: payload,
		CsumStart: uint16(t.Len() - encap.UDPLen), CsumOffset: encap.ChecksumOffsetUDP}.Put(b)
	t.Put(b[encap.VNetHdrLen:], 2*payload, 0, 0, true)
	return b, nil
}

// probeSocket is the descriptor of a packet socket with virtio-net headers.
type probeSocket int

func openProbeSocket() (probeSocket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return 0, fmt.Errorf("packet socket: %w: it takes CAP_NET_RAW", err)
	case err != nil:
		return 0, fmt.Errorf("packet socket (CONFIG_PACKET): %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return 0, fmt.Errorf("PACKET_VNET_HDR: %w", errors.Join(err, unix.Close(fd)))
	}
	return probeSocket(fd), nil
}

// close does not wait for the grace period of RCU that the kernel needs to close a packet socket.
func (s probeSocket) close() { go func() { _ = unix.Close(int(s)) }() }

func (s probeSocket) bind(link int, protocol uint16) error {
	return unix.Bind(int(s), &unix.SockaddrLinklayer{Ifindex: link,
		Protocol: binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))})
}

// only has the socket receive frames to mac alone, since the loopback device may be busy.
func (s probeSocket) only(mac encap.MAC) error {
	const load, same, end = unix.BPF_LD | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_RET | unix.BPF_K
	program := [...]unix.SockFilter{
		{Code: load | unix.BPF_W, K: 0},
		{Code: same, Jf: 3, K: binary.BigEndian.Uint32(mac[:])},
		{Code: load | unix.BPF_H, K: 4},
		{Code: same, Jf: 1, K: uint32(binary.BigEndian.Uint16(mac[4:]))},
		{Code: end, K: 1 << 16},
		{Code: end, K: 0},
	}
	return unix.SetsockoptSockFprog(int(s), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// Protected says which IPsec policy holds for datagrams of this host, and returns nil if there is
// none. Frames would bypass the policy, so that what is to be encrypted would leave in clear.
func (k *Kernel) Protected() error {
	policies, err := dump(func() (l []netlink.XfrmPolicy, err error) {
		// The handle has a socket for routing only: this opens one.
		err = k.Do(func() (err error) { l, err = k.h.XfrmPolicyList(netlink.FAMILY_ALL); return err })
		return l, err
	})
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.ECONNREFUSED):
		return nil // a kernel without IPsec
	case err != nil:
		return fmt.Errorf("list IPsec policies, which frames would pass by: %w", err)
	}
	for _, p := range policies {
		if p.Dir == netlink.XFRM_DIR_OUT || p.Dir == netlink.XFRM_DIR_IN {
			return fmt.Errorf("the host has IPsec policies (%v to %v), which frames would pass by", p.Src, p.Dst)
		}
	}
	return nil
}
