package hostrules

import (
	"fmt"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/routing/internal/notify"
)

// nftablesGroup is NFNLGRP_NFTABLES of nfnetlink.h.
const nftablesGroup = 7

// subscribe opens a subscription to the changes of nftables in this namespace; the caller closes it.
func subscribe() (*notify.Socket, error) {
	s, err := notify.Open(unix.NETLINK_NETFILTER, nftablesGroup)
	if err != nil {
		return nil, fmt.Errorf("subscribe to changes of nftables: %w", err)
	}
	return s, nil
}

// signalChanges puts something into changes, which holds one, whenever rules of ours may have been changed,
// until s is closed. If it fails, the regular inspection goes on.
func signalChanges(s *notify.Socket, changes chan<- struct{}) {
	_ = s.Run(func(msgs []syscall.NetlinkMessage) {
		if len(msgs) > 0 && !slices.ContainsFunc(msgs, concerns) {
			return
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	})
}

// concerns reports whether a message is about a table of ours, or one in which iptables has rules of ours.
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
