package kernel

import (
	"errors"
	"fmt"
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
	l, err := k.h.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = ErrNoLink
	}
	if err != nil {
		return EtherInfo{}, fmt.Errorf("link %s: %w", name, err)
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
	if err := k.Do(probePacketSocket); err != nil {
		return err
	}
	// No datagram has port 0, so the rule drops nothing.
	i, err := k.OpenIngress(link, netip.AddrPortFrom(local, 0))
	if err != nil {
		return err
	}
	return i.Close()
}

func probePacketSocket() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("packet socket: %w: it takes CAP_NET_RAW", err)
	case err != nil:
		return fmt.Errorf("packet socket (CONFIG_PACKET): %w", err)
	}
	// The kernel waits for a grace period of RCU before it has closed a packet socket. The start does not.
	go func() { _ = unix.Close(fd) }()
	return nil
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
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ECONNREFUSED):
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
