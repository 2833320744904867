package hostrules

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// These are the chains of the tables flannel-ipv4 and flannel-ipv6. The first two are flannel's.
const (
	nftMasquerade = "postrtg"
	nftForward    = "forward"
	nftPortInput  = "overlay-input"
	nftPortOut    = "overlay-forward"
	nftPeersSet   = "overlay-peers"
)

// nft is nftables by netlink, for one family.
type nft struct{ ipv6 bool }

func (n nft) name() string { return "nftables table " + n.table() }

func (n nft) table() string {
	if n.ipv6 {
		return "flannel-ipv6"
	}
	return "flannel-ipv4"
}

// inspect identifies chains, rules and elements of our table by the handles that the kernel gives them: a rule
// that somebody has changed or added again has another handle.
func (n nft) inspect() (view, error) {
	family := nfFamily(n.ipv6)
	chains, err := nfChains(family)
	if errors.Is(err, errNoNFTables) {
		return view{}, nil
	}
	if err != nil {
		return view{}, err
	}
	var v view
	var w strings.Builder
	for _, c := range chains {
		if c.table != n.table() || c.family != family {
			continue
		}
		fmt.Fprintf(&w, "chain %s %d drop=%t\n", c.name, c.handle, c.drop)
		rules, err := nfRules(family, c.table, c.name)
		if err != nil {
			return view{}, err
		}
		for _, r := range rules {
			fmt.Fprintf(&w, "%s %d\n", c.name, r.handle)
			switch {
			case strings.Contains(r.comment, commentStranger):
				v.dropped.Strangers += r.packets
			case strings.Contains(r.comment, commentPods):
				v.dropped.Pods += r.packets
			}
		}
		if c.name == nftPortInput {
			keys, err := nfElements(family, c.table, nftPeersSet)
			if err != nil {
				return view{}, err
			}
			slices.Sort(keys)
			fmt.Fprintf(&w, "set %x\n", keys)
		}
	}
	v.own = w.String()
	if v.own == "" { // perhaps a table without chains
		exists, err := n.exists()
		if err != nil {
			return view{}, err
		}
		if exists {
			v.own = "empty table\n"
		}
	}
	return v, nil
}

func (n nft) exists() (bool, error) {
	msgs, err := nfDump(unix.NFT_MSG_GETTABLE, nfFamily(n.ipv6))
	if err != nil {
		return false, fmt.Errorf("list the tables of nftables: %w", err)
	}
	found := false
	for _, m := range msgs {
		eachAttr(m.attrs, func(kind uint16, v []byte) {
			found = found || kind == unix.NFTA_TABLE_NAME && cString(v) == n.table() && m.family == nfFamily(n.ipv6)
		})
	}
	return found, nil
}

// apply replaces the table as a whole, in one transaction.
func (n nft) apply(_ context.Context, want familyRules) (transactions int, err error) {
	c, err := nftables.New(nftables.WithSockOptions(wideSocket))
	if err != nil {
		return 0, fmt.Errorf("nftables: %w", err)
	}
	t := &nftables.Table{Family: nftables.TableFamily(nfFamily(n.ipv6)), Name: n.table()}
	c.AddTable(t) // so that it can be deleted, whether it was there or not
	c.DelTable(t)
	if !want.empty() {
		c.AddTable(t)
		if err := n.fill(c, t, want); err != nil {
			return 0, err
		}
	}
	if err := c.Flush(); err != nil {
		if _, why := nfChains(nfFamily(n.ipv6)); errors.Is(why, errNoNFTables) {
			err = fmt.Errorf("%w, or set EnableNFTables to false", why)
		}
		return 0, fmt.Errorf("nftables table %s: %w", n.table(), err)
	}
	return 1, nil
}

func (nft) generation() (uint32, error) { return nfGeneration() }

// wideSocket makes room for a transaction with all the peers of a large cluster. Without the privilege for
// that, the buffer is as large as the system's limit allows.
func wideSocket(c *netlink.Conn) error {
	_ = c.SetWriteBuffer(8 << 20)
	_ = c.SetReadBuffer(8 << 20)
	return nil
}

// fill adds the chains of an empty table.
func (n nft) fill(c *nftables.Conn, t *nftables.Table, f familyRules) error {
	var set *nftables.Set
	if f.peersInput != nil || f.toPeers() {
		var err error
		if set, err = n.addPeers(c, t, f.peers); err != nil {
			return err
		}
	}
	for _, ch := range []struct {
		name     string
		kind     nftables.ChainType
		hook     *nftables.ChainHook
		priority *nftables.ChainPriority
		rules    []rule
	}{
		{nftPortInput, nftables.ChainTypeFilter, nftables.ChainHookInput, nftables.ChainPriorityMangle, f.portInput()},
		{nftPortOut, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityMangle, f.podsForward},
		{nftForward, nftables.ChainTypeFilter, nftables.ChainHookForward, nftables.ChainPriorityFilter, f.forward},
		{nftMasquerade, nftables.ChainTypeNAT, nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, f.masquerade},
	} {
		if ch.rules == nil {
			continue
		}
		accept := nftables.ChainPolicyAccept
		chain := c.AddChain(&nftables.Chain{Name: ch.name, Table: t, Type: ch.kind, Hooknum: ch.hook, Priority: ch.priority, Policy: &accept})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r.nft(f, set),
				UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment)})
		}
	}
	return nil
}

// elementsAtOnce bounds the elements of one message, whose length has 16 bits.
const elementsAtOnce = 1000

func (n nft) addPeers(c *nftables.Conn, t *nftables.Table, peers []netip.Addr) (*nftables.Set, error) {
	set := &nftables.Set{Table: t, Name: nftPeersSet, KeyType: nftables.TypeIPAddr}
	if n.ipv6 {
		set.KeyType = nftables.TypeIP6Addr
	}
	if err := c.AddSet(set, nil); err != nil {
		return nil, fmt.Errorf("nftables set %s: %w", nftPeersSet, err)
	}
	for some := range slices.Chunk(peers, elementsAtOnce) {
		if err := c.SetAddElements(set, elements(some)); err != nil {
			return nil, fmt.Errorf("nftables set %s: %w", nftPeersSet, err)
		}
	}
	return set, nil
}

func elements(as []netip.Addr) []nftables.SetElement {
	es := make([]nftables.SetElement, len(as))
	for i, a := range as {
		es[i].Key = a.AsSlice()
	}
	return es
}

// nft returns r as expressions for the kernel; set holds the peers.
func (r rule) nft(f familyRules, set *nftables.Set) []expr.Any {
	var es []expr.Any
	if r.in != "" {
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, r.in)
		es = append(es, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name})
	}
	if r.port != 0 {
		es = append(es,
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.port)})
	}
	if r.protocol != 0 {
		es = append(es, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{r.protocol}})
	}
	if r.marked {
		mark := binaryutil.NativeEndian.PutUint32(kubeMark)
		es = append(es,
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mark, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mark})
	}
	es = append(es, matchPrefix(sourceField, r.src, r.nsrc)...)
	es = append(es, matchPrefix(destinationField, r.dst, r.ndst)...)
	if r.fromStranger {
		field := addressField(sourceField, f.ipv6)
		es = append(es, field, &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true})
	}
	if r.toPeer {
		es = append(es, addressField(destinationField, f.ipv6), &expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID})
	}
	switch r.do {
	case verdictReturn:
		es = append(es, &expr.Verdict{Kind: expr.VerdictReturn})
	case verdictAccept:
		es = append(es, &expr.Verdict{Kind: expr.VerdictAccept})
	case verdictDrop:
		es = append(es, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
	case verdictMasquerade:
		es = append(es, &expr.Masq{FullyRandom: f.randomFully})
	}
	return es
}

// field names one of the addresses in an IP header.
type field uint8

const (
	_ field = iota
	sourceField
	destinationField
)

// addressField loads an address into register 1 (RFC 791 section 3.1, RFC 8200 section 3).
func addressField(which field, ipv6 bool) *expr.Payload {
	p := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	if ipv6 {
		p.Offset, p.Len = 8, 16
	}
	if which == destinationField {
		p.Offset += p.Len
	}
	return p
}

func matchPrefix(which field, p netip.Prefix, not bool) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	load := addressField(which, p.Addr().Is6())
	op := expr.CmpOpEq
	if not {
		op = expr.CmpOpNeq
	}
	mask := make([]byte, load.Len)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{load,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: load.Len, Mask: mask, Xor: make([]byte, load.Len)},
		&expr.Cmp{Op: op, Register: 1, Data: p.Masked().Addr().AsSlice()}}
}
