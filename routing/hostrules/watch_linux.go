package hostrules

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/routing/internal/notify"
	"weft/tunnel/nlattr"
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

// concerns reports whether a message is about a table of ours, or a chain of iptables that has rules of ours.
func concerns(m syscall.NetlinkMessage) bool {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < nl.SizeofNfgenmsg {
		return false
	}
	var table, chain string
	nlattr.Each(m.Data[nl.SizeofNfgenmsg:], func(kind uint16, v []byte) bool {
		// The table's name is the first attribute of all messages but the one that ends a transaction.
		switch kind {
		case unix.NFTA_RULE_TABLE:
			table = strings.TrimRight(string(v), "\x00")
		case unix.NFTA_RULE_CHAIN:
			chain = strings.TrimRight(string(v), "\x00")
		case unix.NFTA_CHAIN_NAME:
			if t := m.Header.Type & 0xff; t == unix.NFT_MSG_NEWCHAIN || t == unix.NFT_MSG_DELCHAIN {
				chain = strings.TrimRight(string(v), "\x00")
			}
		}
		return true
	})
	switch t := m.Header.Type & 0xff; {
	case t == unix.NFT_MSG_NEWGEN:
		return false
	case slices.Contains([]string{dropTable, flannelTable(false), flannelTable(true)}, table):
		return true
	case table != "filter" && table != "nat":
		return false
	}
	return m.Header.Type&0xff == unix.NFT_MSG_DELTABLE ||
		slices.Contains([]string{"FORWARD", "POSTROUTING", chainAccept, chainMasquerade}, chain)
}
