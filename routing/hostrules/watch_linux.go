package hostrules

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nftablesGroup is NFNLGRP_NFTABLES of nfnetlink.h.
const nftablesGroup = 7

// monitorBuffer is the socket's receive buffer in bytes. What overflows it is made good by one look.
const monitorBuffer = 2 << 20

// monitor is a subscription to the changes of nftables in a namespace.
type monitor struct {
	s      *nl.NetlinkSocket
	closed atomic.Bool
}

// subscribe opens the subscription; the caller closes it.
func subscribe() (*monitor, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER, nftablesGroup)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	if s.SetReceiveBufferSize(monitorBuffer, true) != nil {
		_ = s.SetReceiveBufferSize(monitorBuffer, false) // as much as rmem_max allows
	}
	return &monitor{s: s}, nil
}

// close ends run. It may be called again.
func (m *monitor) close() {
	if !m.closed.Swap(true) {
		m.s.Close()
	}
}

// run puts something into changes, which holds one, whenever rules of ours may have been changed,
// until close.
func (m *monitor) run(changes chan<- struct{}) {
	tell := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	for {
		msgs, from, err := m.s.Receive()
		switch {
		case m.closed.Load():
			return
		case errors.Is(err, unix.ENOBUFS): // the kernel dropped some: anything may have changed
			tell()
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return // the regular look goes on
		case from.Pid != nl.PidKernel: // another process may send to the socket as well
		case slices.ContainsFunc(msgs, concerns):
			tell()
		}
	}
}

// concerns reports whether a message is about a table of ours, or one that iptables has rules of ours in.
func concerns(m syscall.NetlinkMessage) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nl.SizeofNfgenmsg {
		return false
	}
	if m.Header.Type&0xff == unix.NFT_MSG_NEWGEN { // ends each transaction
		return false
	}
	// The table's name is attribute 1 of all of them: NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE …
	found := false
	eachAttr(m.Data[nl.SizeofNfgenmsg:], func(kind uint16, v []byte) {
		if kind == unix.NFTA_RULE_TABLE {
			table := cString(v)
			found = isOwnTable(table) || slices.Contains(iptablesTables(), table)
		}
	})
	return found
}
