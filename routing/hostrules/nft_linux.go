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
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// These are the chains of the tables flannel-ipv4 and flannel-ipv6. The first two are flannel's.
const (
	nftMasquerade = "postrtg"
	nftForward    = "forward"
	nftPortInput  = "overlay-input"
	nftPortOut    = "overlay-forward"
	nftSealedIn   = "sealed-in"
	nftSealedOut  = "sealed-out"
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
	t, err := n.read()
	if errors.Is(err, errNoNFTables) {
		return view{}, nil
	}
	if err != nil || !t.exists {
		return view{}, err
	}
	var v view
	var w strings.Builder
	fmt.Fprintf(&w, "table flags=%#x\n", t.flags)
	for _, c := range t.chains {
		fmt.Fprintf(&w, "chain %s %d drop=%t\n", c.name, c.handle, c.drop)
		for _, r := range c.rules {
			fmt.Fprintf(&w, "%s %d\n", c.name, r.handle)
			switch {
			case strings.Contains(r.comment, commentStranger):
				v.dropped.Strangers += r.packets
			case strings.Contains(r.comment, commentPods):
				v.dropped.Pods += r.packets
			case strings.Contains(r.comment, commentSealed):
				v.dropped.Plain += r.packets
			}
		}
	}
	if t.set != nil {
		slices.Sort(t.set.keys)
		fmt.Fprintf(&w, "set flags=%#x exprs=%t keyless=%d %x\n", t.set.flags, t.set.exprs, t.set.keyless, t.set.keys)
	}
	v.own = w.String()
	return v, nil
}

// nftOwn is our table as the kernel has it.
type nftOwn struct {
	exists bool
	flags  uint32
	chains []nftHeld
	set    *nfSet // of peers; nil if there is none
}

// nftHeld is a chain with its rules.
type nftHeld struct {
	nfChain
	rules []nfRule
}

// read reads the whole table.
func (n nft) read() (t nftOwn, err error) {
	family := nfFamily(n.ipv6)
	if t.flags, t.exists, err = nfTableFlags(family, n.table()); err != nil || !t.exists {
		return t, err
	}
	chains, err := nfChains(family)
	if err != nil {
		return t, err
	}
	for _, c := range chains {
		if c.table != n.table() || c.family != family {
			continue
		}
		rules, err := nfRules(family, c.table, c.name)
		if err != nil {
			return t, err
		}
		t.chains = append(t.chains, nftHeld{c, rules})
	}
	t.set, err = nfGetSet(family, n.table(), nftPeersSet)
	return t, err
}

// apply changes what differs in the table, in one transaction. Where that is not possible the table is made anew, also in one.
func (n nft) apply(_ context.Context, want familyRules) (transactions int, err error) {
	have, err := n.read()
	if err != nil && !errors.Is(err, errNoNFTables) {
		return 0, err
	}
	if !have.exists && want.empty() {
		return 0, nil
	}
	p, err := n.plan(want)
	if err != nil {
		return 0, err
	}
	if have.exists && !want.empty() {
		c, err := n.conn()
		if err != nil {
			return 0, err
		}
		steps, ok, err := p.change(c, have)
		if ok && err == nil {
			if steps == 0 {
				return 0, nil
			}
			if err = c.Flush(); err == nil {
				return 1, nil
			}
		}
		// Somebody else has changed it since it was read, or has made in it what this does not know.
	}
	c, err := n.conn()
	if err != nil {
		return 0, err
	}
	if err := p.whole(c); err != nil {
		return 0, err
	}
	if err := c.Flush(); err != nil {
		if _, why := nfChains(nfFamily(n.ipv6)); errors.Is(why, errNoNFTables) {
			err = fmt.Errorf("%w, or set EnableNFTables to false", why)
		}
		return 0, fmt.Errorf("nftables table %s: %w", n.table(), err)
	}
	return 1, nil
}

// conn collects a transaction.
func (nft) conn() (*nftables.Conn, error) {
	c, err := nftables.New(nftables.WithSockOptions(wideSocket))
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return c, nil
}

func (nft) generation() (uint32, error) { return nfGeneration() }

// wideSocket makes room for a transaction with all the peers of a large cluster. Without the privilege for
// that, the buffer is as large as the system's limit allows.
func wideSocket(c *netlink.Conn) error {
	_ = c.SetWriteBuffer(8 << 20)
	_ = c.SetReadBuffer(8 << 20)
	return nil
}

// nft returns r as expressions for the kernel.
func (r rule) nft(f familyRules) []expr.Any {
	var es []expr.Any
	es = append(es, matchLink(expr.MetaKeyIIFNAME, r.in)...)
	es = append(es, matchLink(expr.MetaKeyOIFNAME, r.out)...)
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
		es = append(es, field, &expr.Lookup{SourceRegister: 1, SetName: nftPeersSet, Invert: true})
	}
	if r.toPeer {
		es = append(es, addressField(destinationField, f.ipv6), &expr.Lookup{SourceRegister: 1, SetName: nftPeersSet})
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

// matchLink matches a link by its whole name; "" matches all.
func matchLink(key expr.MetaKey, link string) []expr.Any {
	if link == "" {
		return nil
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: name}}
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
