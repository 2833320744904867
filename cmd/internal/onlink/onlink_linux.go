// Package onlink says who has an IPv4 address on the link that leads to it: what the kernel's neighbour table
// has, and who answers ARP now. It changes no entry.
package onlink

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/diagnose"
)

// Each address is asked for tries times, and the answers of a link are awaited for patience after each.
const tries, patience = 2, 150 * time.Millisecond

// Look looks at the next hop to each address, or at the address itself if it is this host's. One whose link
// has no ARP has no element.
func Look(ctx context.Context, addrs []netip.Addr) map[netip.Addr]diagnose.Neighbour {
	out := map[netip.Addr]diagnose.Neighbour{}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return out
	}
	defer h.Close()
	_ = h.SetSocketTimeout(time.Second) // else it waits for ever
	all, _ := h.LinkList()              // what is missing of it is not taken for this host's
	links := map[int][]netip.Addr{}
	for _, a := range addrs {
		n, index := nextHop(h, a)
		if n == nil {
			continue
		}
		out[a] = *n
		if n.Err != nil {
			continue
		}
		if !slices.Contains(links[index], n.At) {
			links[index] = append(links[index], n.At)
		}
	}
	knock(addrs)
	own := func(mac net.HardwareAddr) bool { // another link of this host answers for all its addresses
		return slices.ContainsFunc(all, func(l netlink.Link) bool {
			return bytes.Equal(l.Attrs().HardwareAddr, mac)
		})
	}
	for index, hops := range links {
		who, err := ask(ctx, index, hops)
		for a, n := range out {
			if slices.Contains(hops, n.At) {
				n.Asked, n.Answers = err == nil, slices.DeleteFunc(slices.Clone(who[n.At]), own)
				out[a] = n
			}
		}
	}
	return out
}

// knock asks each address by ICMP, for the kernel's counters to show what it does with the answers.
func knock(addrs []netip.Addr) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	for _, a := range addrs {
		if a.Is4() {
			echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}                     // an empty request, with its checksum
			_ = unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: a.As4()}) // that it fails, the routes say
		}
	}
}

// nextHop finds the neighbour by which packets to a leave, and its entry; nil for one without ARP.
func nextHop(h *netlink.Handle, a netip.Addr) (n *diagnose.Neighbour, index int) {
	if !a.Is4() {
		return nil, 0
	}
	rs, err := h.RouteGet(a.AsSlice())
	if err != nil || len(rs) == 0 {
		return &diagnose.Neighbour{Err: err}, 0
	}
	n, index = &diagnose.Neighbour{At: a}, rs[0].LinkIndex
	if gw, ok := netip.AddrFromSlice(rs[0].Gw); ok {
		n.At = gw.Unmap()
	}
	if n.Own = rs[0].Type == unix.RTN_LOCAL; n.Own {
		all, _ := h.AddrList(nil, netlink.FAMILY_V4) // without it the link is lo, which has no ARP
		for _, x := range all {
			if x.IP.Equal(a.AsSlice()) {
				index = x.LinkIndex
			}
		}
	}
	link, err := h.LinkByIndex(index)
	if err != nil || link.Attrs().RawFlags&(unix.IFF_NOARP|unix.IFF_LOOPBACK) != 0 ||
		len(link.Attrs().HardwareAddr) != 6 {
		return nil, 0
	}
	n.Link = link.Attrs().Name
	entries, _ := h.NeighList(index, netlink.FAMILY_V4) // an entry that is not known is none
	for _, e := range entries {
		if e.IP.Equal(n.At.AsSlice()) {
			n.Entry, n.Pinned = e.HardwareAddr, e.State&netlink.NUD_PERMANENT != 0
		}
	}
	return n, index
}

// ask asks a link who has the addresses, as RFC 5227 does it: with no address of our own, so that nobody
// learns anything by it.
func ask(ctx context.Context, index int, addrs []netip.Addr) (map[netip.Addr][]net.HardwareAddr, error) {
	link, err := net.InterfaceByIndex(index)
	if err != nil {
		return nil, err
	}
	arp := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ARP))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(arp))
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	at := unix.SockaddrLinklayer{Protocol: arp, Ifindex: index, Halen: 6,
		Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	if err := unix.Bind(fd, &at); err != nil {
		return nil, err
	}
	got := map[netip.Addr][]net.HardwareAddr{}
	for range tries {
		for _, a := range addrs {
			if err := unix.Sendto(fd, request(link.HardwareAddr, a), 0, &at); err != nil {
				return nil, err
			}
		}
		collect(ctx, fd, time.Now().Add(patience), func(mac net.HardwareAddr, a netip.Addr) {
			known := slices.ContainsFunc(got[a], func(m net.HardwareAddr) bool { return bytes.Equal(m, mac) })
			if slices.Contains(addrs, a) && !known {
				got[a] = append(got[a], mac)
			}
		})
	}
	return got, nil
}

// The fields of an ARP packet for Ethernet and IPv4 (RFC 826).
const (
	arpSender, arpSenderIP, arpTargetIP = 8, 14, 24

	arpLength, arpReply = 28, 2
)

// arpHead is Ethernet, IPv4, their lengths, and the first byte of the operation.
var arpHead = []byte{0, 1, 8, 0, 6, 4, 0}

func request(own net.HardwareAddr, a netip.Addr) []byte {
	b := make([]byte, arpLength)
	copy(b, append(slices.Clone(arpHead), 1))
	copy(b[arpSender:], own)
	copy(b[arpTargetIP:], a.AsSlice())
	return b
}

// collect takes in replies until a time.
func collect(ctx context.Context, fd int, until time.Time, take func(net.HardwareAddr, netip.Addr)) {
	for b := make([]byte, 64); ctx.Err() == nil; {
		left := time.Until(until)
		if left <= 0 {
			return
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
		if err != nil || n == 0 {
			continue
		}
		n, _, err = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		if err != nil || n < arpLength || !bytes.HasPrefix(b, arpHead) || b[len(arpHead)] != arpReply {
			continue
		}
		take(slices.Clone(b[arpSender:arpSenderIP]), netip.AddrFrom4([4]byte(b[arpSenderIP:])))
	}
}
