package hostrules

import (
	"fmt"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// nfTableFlags finds a table of nftables and its flags.
func nfTableFlags(family uint8, name string) (flags uint32, exists bool, err error) {
	msgs, err := nfDump(unix.NFT_MSG_GETTABLE, family)
	if err != nil {
		return 0, false, fmt.Errorf("list the tables of nftables: %w", err)
	}
	for _, m := range msgs {
		a := attrsOf(m.attrs)
		if m.family == family && cString(a[unix.NFTA_TABLE_NAME]) == name {
			return be32(a[unix.NFTA_TABLE_FLAGS]), true, nil
		}
	}
	return 0, false, nil
}

// Attributes of a set (linux/netfilter/nf_tables.h): what each element has, one expression or several.
const (
	nftaSetExpr        = 17
	nftaSetExpressions = 18
)

// nfSet is a set as the kernel lists it.
type nfSet struct {
	flags   uint32
	keySize uint32
	limit   uint32   // of elements; 0 for none
	timeout bool     // elements go by themselves
	exprs   bool     // elements have expressions, such as counters
	keyless int      // elements without a key, which stand for every other one
	keys    []string // in no order
}

// plain reports whether it is of the kind of w, which has no peculiarities.
func (s nfSet) plain(w *nftables.Set) bool {
	return s.flags == 0 && s.keySize == w.KeyType.Bytes && s.limit == 0 && !s.timeout && !s.exprs && s.keyless == 0
}

// nfGetSet reads a set; nil if there is none.
func nfGetSet(family uint8, table, name string) (*nfSet, error) {
	msgs, err := nfDump(unix.NFT_MSG_GETSET, family, nl.NewRtAttr(unix.NFTA_SET_TABLE, nl.ZeroTerminated(table)))
	if err != nil {
		return nil, fmt.Errorf("list the sets of table %s: %w", table, err)
	}
	for _, m := range msgs {
		a := attrsOf(m.attrs)
		if m.family != family || cString(a[unix.NFTA_SET_TABLE]) != table || cString(a[unix.NFTA_SET_NAME]) != name {
			continue
		}
		s := &nfSet{flags: be32(a[unix.NFTA_SET_FLAGS]), keySize: be32(a[unix.NFTA_SET_KEY_LEN]), timeout: a[unix.NFTA_SET_TIMEOUT] != nil}
		s.limit = be32(attrsOf(a[unix.NFTA_SET_DESC])[unix.NFTA_SET_DESC_SIZE])
		s.exprs = a[nftaSetExpr] != nil || a[nftaSetExpressions] != nil
		s.keys, s.keyless, err = nfElements(family, table, name)
		return s, err
	}
	return nil, nil
}
