package routing

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// monitorBuffer is the socket's receive buffer in bytes. The kernel charges about 1 KB a
// message, so this rides out some 2,000 of them; what overflows it is made good by one
// reconcile.
const monitorBuffer = 2 << 20

// interest says which notifications concern us. It is immutable once stored.
type interest struct {
	indexes  map[int]bool
	names    map[string]bool
	networks []netip.Prefix
}

// monitor is one subscription to the changes of links, addresses and routes in a namespace.
type monitor struct {
	s        *nl.NetlinkSocket
	closed   atomic.Bool // the socket's own error after Close is not os.ErrClosed
	interest atomic.Pointer[interest]
}

// subscribe opens the subscription; the caller closes it.
func (k *Kernel) subscribe() (*monitor, error) {
	m := &monitor{}
	m.interest.Store(&interest{})
	err := k.do(func() (err error) {
		m.s, err = nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK,
			unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to link, address and route changes: %w", err)
	}
	if m.s.SetReceiveBufferSize(monitorBuffer, true) != nil {
		// Without CAP_NET_ADMIN in the first user namespace, as much as rmem_max allows.
		_ = m.s.SetReceiveBufferSize(monitorBuffer, false)
	}
	return m, nil
}

// close ends run.
func (m *monitor) close() {
	m.closed.Store(true)
	m.s.Close()
}

// watch replaces what the monitor looks for.
func (m *monitor) watch(i interest) { m.interest.Store(&i) }

// run calls changed after every message that concerns us, and when messages were lost,
// until close. changed must not block.
func (m *monitor) run(changed func()) error {
	for {
		msgs, from, err := m.s.Receive()
		switch {
		case err != nil && m.closed.Load():
			return nil
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped some: anything may have changed
			changed()
			continue
		case errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN):
			continue
		case err != nil:
			return fmt.Errorf("receive netlink notifications: %w", err)
		case from.Pid != nl.PidKernel: // another process may send to the socket as well
			continue
		}
		i := m.interest.Load()
		for _, msg := range msgs {
			if i.concerns(msg) {
				changed()
				break
			}
		}
	}
}

// concerns reports whether a message is about our device, the underlay, or a
// route of our networks.
func (i *interest) concerns(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return false
		}
		return i.indexes[int(nl.DeserializeIfInfomsg(m.Data).Index)] ||
			i.names[string(attribute(m.Data[unix.SizeofIfInfomsg:], unix.IFLA_IFNAME))]
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return len(m.Data) >= unix.SizeofIfAddrmsg && i.indexes[int(nl.DeserializeIfAddrmsg(m.Data).Index)]
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return i.concernsRoute(m.Data)
	}
	return false
}

func (i *interest) concernsRoute(b []byte) bool {
	if len(b) < unix.SizeofRtMsg {
		return false
	}
	head, attrs := nl.DeserializeRtMsg(b), b[unix.SizeofRtMsg:]
	if head.Table != unix.RT_TABLE_MAIN || head.Flags&unix.RTM_F_CLONED != 0 {
		return false
	}
	if out := attribute(attrs, unix.RTA_OIF); len(out) == 4 && i.indexes[int(nl.NativeEndian().Uint32(out))] {
		return true
	}
	dst := fromIP(attribute(attrs, unix.RTA_DST))
	for _, n := range i.networks {
		if n.Contains(dst) {
			return true
		}
	}
	return false
}

// attrTypeMask is NLA_TYPE_MASK of netlink.h: the two high bits are flags.
const attrTypeMask = 1<<14 - 1

// attribute finds the first netlink attribute of a kind and returns its value, without the
// NUL that ends a name; nil if there is none.
func attribute(b []byte, kind uint16) []byte {
	for len(b) >= unix.SizeofRtAttr {
		length := int(nl.NativeEndian().Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			return nil
		}
		if nl.NativeEndian().Uint16(b[2:])&attrTypeMask == kind {
			v := b[unix.SizeofRtAttr:length]
			if kind == unix.IFLA_IFNAME && len(v) > 0 && v[len(v)-1] == 0 {
				v = v[:len(v)-1]
			}
			return v
		}
		b = b[min(len(b), (length+3)&^3):]
	}
	return nil
}
