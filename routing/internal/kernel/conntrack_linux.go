package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/tunnel/natflow"
	"weft/tunnel/nlattr"
)

// Attributes of a flow, and of what they contain (linux/netfilter/nfnetlink_conntrack.h), and a bit of its
// status (nf_conntrack_common.h).
const (
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaStatusMask = 26

	ctaTupleIP, ctaTupleProto          = 1, 2
	ctaIPv4Src, ctaIPv4Dst             = 1, 2
	ctaIPv6Src, ctaIPv6Dst             = 3, 4
	ctaProtoNum, ctaSrcPort            = 1, 2
	ctaDstPort, ctaICMPID, ctaICMPv6ID = 3, 4, 7
	ctaProtoInfoTCP, ctaTCPState       = 1, 1

	ipsDestinationNAT = 1 << 5

	// of enum tcp_conntrack, first and last of the states in which one side has ended the connection
	tcpFinWait, tcpClose = 4, 8
)

// offloadedFor is how long a flow is known whose time the kernel does not say: one that a flow table of
// nf_tables carries, which ends when nothing passes for 30 seconds by default and is connection tracking's
// again.
const offloadedFor = 3 * time.Minute

// conntrackCount has the number of flows that connection tracking knows. There is none without the module.
const conntrackCount = "/proc/sys/net/netfilter/nf_conntrack_count"

// TranslatedFlows lists the flows whose destination the rules of the namespace have translated, and whose
// client is one of those asked for. Without connection tracking there are none, and it is not loaded for
// that.
func (k *Kernel) TranslatedFlows(client func(netip.Addr) bool) (flows []natflow.Translated, err error) {
	err = k.Do(func() error {
		count, err := os.ReadFile(conntrackCount)
		if errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(count)) == "0" {
			return nil
		}
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			l, err := dump(func() ([]natflow.Translated, error) { return translated(family, client) })
			if err != nil {
				return err
			}
			flows = append(flows, l...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the flows that connection tracking knows: %w", err)
	}
	return flows, nil
}

// translated asks in the calling thread's namespace. The kernel sends only what is wanted; one that does not
// know the filter sends everything.
func translated(family uint8, client func(netip.Addr) bool) (flows []natflow.Translated, err error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	bit := binary.BigEndian.AppendUint32(nil, ipsDestinationNAT)
	req.AddData(nl.NewRtAttr(ctaStatus, bit))
	req.AddData(nl.NewRtAttr(ctaStatusMask, bit))
	err = req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(b []byte) bool {
		if len(b) > nl.SizeofNfgenmsg {
			if t, ok := parseTranslated(b[nl.SizeofNfgenmsg:]); ok && client(t.Client.Addr()) {
				flows = append(flows, t)
			}
		}
		return true
	})
	return flows, err
}

// parseTranslated reads a flow. ok is false if its destination is not translated, or it is none.
func parseTranslated(b []byte) (t natflow.Translated, ok bool) {
	t.Left = offloadedFor
	var status uint32
	nlattr.Each(b, func(kind uint16, v []byte) bool {
		switch {
		case kind == ctaStatus && len(v) == 4:
			status = binary.BigEndian.Uint32(v)
		case kind == ctaTimeout && len(v) == 4:
			t.Left = time.Duration(binary.BigEndian.Uint32(v)) * time.Second
		case kind == ctaProtoInfo:
			if state := nlattr.Find(nlattr.Find(v, ctaProtoInfoTCP), ctaTCPState); len(state) == 1 {
				t.Closing = state[0] >= tcpFinWait && state[0] <= tcpClose
			}
		case kind == ctaTupleReply:
			ok = parseReply(v, &t)
		}
		return true
	})
	return t, ok && status&ipsDestinationNAT != 0
}

// parseReply reads how the answers go.
func parseReply(b []byte, t *natflow.Translated) bool {
	var src, dst netip.Addr
	nlattr.Each(nlattr.Find(b, ctaTupleIP), func(kind uint16, v []byte) bool {
		a, _ := netip.AddrFromSlice(v)
		switch kind {
		case ctaIPv4Src, ctaIPv6Src:
			src = a
		case ctaIPv4Dst, ctaIPv6Dst:
			dst = a
		}
		return true
	})
	var from, to uint16
	nlattr.Each(nlattr.Find(b, ctaTupleProto), func(kind uint16, v []byte) bool {
		switch {
		case kind == ctaProtoNum && len(v) == 1:
			t.Proto = v[0]
		case len(v) != 2:
		case kind == ctaSrcPort:
			from = binary.BigEndian.Uint16(v)
		case kind == ctaDstPort:
			to = binary.BigEndian.Uint16(v)
		case kind == ctaICMPID || kind == ctaICMPv6ID:
			from = binary.BigEndian.Uint16(v)
			to = from
		}
		return true
	})
	t.Backend, t.Client = netip.AddrPortFrom(src, from), netip.AddrPortFrom(dst, to)
	return src.IsValid() && dst.IsValid() && t.Proto != 0
}
