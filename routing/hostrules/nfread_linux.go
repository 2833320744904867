package hostrules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft/tunnel/nlattr"
)

// This file reads nftables. google/nftables decodes whole rules, and fails on expressions that it does not
// know, which other people's tables have. Here only names, handles, verdicts and counters are read.

// nfFamily is NFPROTO_IPV4 or NFPROTO_IPV6, which are also the address families.
func nfFamily(ipv6 bool) uint8 {
	if ipv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// nfChain is a chain as the kernel lists it.
type nfChain struct {
	family      uint8
	table, name string
	handle      uint64
	base        bool
	hook        uint32 // of a base chain, NF_INET_*
	priority    int32  // of a base chain
	flags       uint32 // but NFT_CHAIN_BASE
	drop        bool   // policy
	filter      string // of a base chain, its type: filter, nat or route
}

// nfRule is a rule as the kernel lists it.
type nfRule struct {
	handle  uint64
	verdict int32  // of its last verdict; noVerdict if there is none
	to      string // the chain that it jumps or goes to
	packets uint64 // of its counter
	comment string // as raw user data
	// expressions are borrowed: part of what the kernel sent.
	expressions []byte
}

// marked reports whether its comment is one of ours.
func (r nfRule) marked() bool {
	return slices.ContainsFunc(comments(), func(c string) bool { return strings.Contains(r.comment, c) })
}

const (
	noVerdict = int32(-1 << 31)
	nfDrop    = 0 // NF_DROP
)

// These are of linux/netfilter/nf_tables.h.
const (
	nftaChainFlags = 10 // NFTA_CHAIN_FLAGS
	nftChainBase   = 1  // NFT_CHAIN_BASE
)

// nfDump asks for a listing; attributes narrow it. Each result is one message behind its nfgenmsg.
func nfDump(kind int, family uint8, attrs ...*nl.RtAttr) ([]nfMessage, error) {
	const tries = 4
	for i := 1; ; i++ {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
		req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
		for _, a := range attrs {
			req.AddData(a)
		}
		msgs, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, netlink.ErrDumpInterrupted) && i < tries {
			continue
		}
		if errors.Is(err, unix.ENOENT) { // no such table, chain or set
			return nil, nil
		}
		for _, absent := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT} {
			if errors.Is(err, absent) {
				return nil, fmt.Errorf("%w: %w", errNoNFTables, err)
			}
		}
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return nil, err
		}
		out := make([]nfMessage, 0, len(msgs))
		for _, m := range msgs {
			if len(m) >= nl.SizeofNfgenmsg {
				out = append(out, nfMessage{family: m[0], attrs: m[nl.SizeofNfgenmsg:]})
			}
		}
		return out, nil
	}
}

// errNoNFTables is for a kernel without nftables, or one whose module is not loaded.
var errNoNFTables = errors.New("the kernel has no nftables: load the module nf_tables")

// nfGeneration returns how often nftables was changed in this namespace, modulo 2^32; 0 without nftables.
func nfGeneration() (uint32, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_UNSPEC, Version: nl.NFNETLINK_V0})
	msgs, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the generation of nftables: %w", err)
	}
	for _, m := range msgs {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		var id uint32
		found := false
		eachAttr(m[nl.SizeofNfgenmsg:], func(kind uint16, v []byte) {
			if kind == unix.NFTA_GEN_ID && len(v) == 4 {
				id, found = be32(v), true
			}
		})
		if found {
			return id, nil
		}
	}
	return 0, errors.New("read the generation of nftables: the kernel's answer has none")
}

type nfMessage struct {
	family uint8
	attrs  []byte
}

// nfChains lists the chains of a family, or of all with NFPROTO_UNSPEC.
func nfChains(family uint8) ([]nfChain, error) {
	msgs, err := nfDump(unix.NFT_MSG_GETCHAIN, family)
	if err != nil {
		return nil, fmt.Errorf("list the chains of nftables: %w", err)
	}
	var cs []nfChain
	for _, m := range msgs {
		c := nfChain{family: m.family}
		eachAttr(m.attrs, func(kind uint16, v []byte) {
			switch kind {
			case unix.NFTA_CHAIN_TABLE:
				c.table = cString(v)
			case unix.NFTA_CHAIN_NAME:
				c.name = cString(v)
			case unix.NFTA_CHAIN_HANDLE:
				c.handle = be64(v)
			case unix.NFTA_CHAIN_TYPE:
				c.filter = cString(v)
			case unix.NFTA_CHAIN_POLICY:
				c.drop = be32(v) == nfDrop && len(v) == 4
			case nftaChainFlags:
				c.flags = be32(v) &^ nftChainBase
			case unix.NFTA_CHAIN_HOOK:
				c.base = true
				eachAttr(v, func(kind uint16, v []byte) {
					switch kind {
					case unix.NFTA_HOOK_HOOKNUM:
						c.hook = be32(v)
					case unix.NFTA_HOOK_PRIORITY:
						c.priority = int32(be32(v))
					}
				})
			}
		})
		cs = append(cs, c)
	}
	return cs, nil
}

// nfRules lists the rules of a chain; none if it does not exist.
func nfRules(family uint8, table, chain string) ([]nfRule, error) {
	msgs, err := nfDump(unix.NFT_MSG_GETRULE, family,
		nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(table)), nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(chain)))
	if err != nil {
		return nil, fmt.Errorf("list the rules of chain %s of table %s: %w", chain, table, err)
	}
	var rs []nfRule
	for _, m := range msgs {
		r := nfRule{verdict: noVerdict}
		in := ""
		eachAttr(m.attrs, func(kind uint16, v []byte) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				in = cString(v)
			case unix.NFTA_RULE_HANDLE:
				r.handle = be64(v)
			case unix.NFTA_RULE_USERDATA:
				r.comment = string(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				r.expressions = v
				eachAttr(v, func(_ uint16, e []byte) { r.expression(e) })
			}
		})
		if in == chain { // a kernel that does not narrow the listing gives all
			rs = append(rs, r)
		}
	}
	return rs, nil
}

// expression reads one expression of the rule into r.
func (r *nfRule) expression(e []byte) {
	name, data := "", []byte(nil)
	eachAttr(e, func(kind uint16, v []byte) {
		switch kind {
		case unix.NFTA_EXPR_NAME:
			name = cString(v)
		case unix.NFTA_EXPR_DATA:
			data = v
		}
	})
	switch name {
	case "counter":
		eachAttr(data, func(kind uint16, v []byte) {
			if kind == unix.NFTA_COUNTER_PACKETS {
				r.packets = be64(v)
			}
		})
	case "immediate":
		eachAttr(data, func(kind uint16, v []byte) {
			if kind != unix.NFTA_IMMEDIATE_DATA {
				return
			}
			eachAttr(v, func(kind uint16, v []byte) {
				if kind != unix.NFTA_DATA_VERDICT {
					return
				}
				eachAttr(v, func(kind uint16, v []byte) {
					switch kind {
					case unix.NFTA_VERDICT_CODE:
						r.verdict = int32(be32(v))
					case unix.NFTA_VERDICT_CHAIN:
						r.to = cString(v)
					}
				})
			})
		})
	}
}

// nfElements lists the keys of a set, in no order, and counts the elements that have none: what stands for every key that is not listed
// (NFT_SET_ELEM_CATCHALL).
func nfElements(family uint8, table, set string) (keys []string, keyless int, err error) {
	msgs, err := nfDump(unix.NFT_MSG_GETSETELEM, family,
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(table)), nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	if err != nil {
		return nil, 0, fmt.Errorf("list the elements of set %s of table %s: %w", set, table, err)
	}
	for _, m := range msgs {
		eachAttr(m.attrs, func(kind uint16, v []byte) {
			if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
				return
			}
			eachAttr(v, func(_ uint16, v []byte) {
				if key := attrsOf(attrsOf(v)[unix.NFTA_SET_ELEM_KEY])[unix.NFTA_DATA_VALUE]; key != nil {
					keys = append(keys, string(key))
				} else {
					keyless++
				}
			})
		})
	}
	return keys, keyless, nil
}

// eachAttr calls f with the netlink attributes in b until one's length is wrong.
func eachAttr(b []byte, f func(kind uint16, value []byte)) {
	nlattr.Each(b, func(kind uint16, value []byte) bool {
		f(kind, value)
		return true
	})
}

func be32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func be64(b []byte) uint64 {
	if len(b) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// isOwnTable reports whether a table of nftables is ours by its name.
func isOwnTable(name string) bool { return name == nft{}.table() || name == nft{ipv6: true}.table() }
