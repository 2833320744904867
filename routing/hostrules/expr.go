package hostrules

import (
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// nft returns r as expressions for the kernel. set names a set of the table; nil for a table of one family,
// which needs no match of the family and has no set.
func (r rule) nft(set func(stem string) string, randomFully bool) []expr.Any {
	var es []expr.Any
	if set != nil {
		family := byte(unix.NFPROTO_IPV4)
		if r.ipv6 {
			family = unix.NFPROTO_IPV6
		}
		es = append(es, &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}})
	}
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
		es = append(es, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{r.protocol}})
	}
	if r.marked {
		mark := binaryutil.NativeEndian.PutUint32(kubeMark)
		es = append(es,
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mark, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: mark})
	}
	es = append(es, matchPrefix(false, r.src, r.nsrc)...)
	es = append(es, matchPrefix(true, r.dst, r.ndst)...)
	if r.inside {
		es = append(es, &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Lookup{SourceRegister: 1, SetName: set(setLinks), Invert: true})
	}
	if r.fromStranger {
		es = append(es, addressField(false, r.ipv6),
			&expr.Lookup{SourceRegister: 1, SetName: set(setPeers(r.ipv6)), Invert: true})
	}
	if r.toPeer {
		es = append(es, addressField(true, r.ipv6),
			&expr.Lookup{SourceRegister: 1, SetName: set(setPeers(r.ipv6))})
	}
	switch r.do {
	case verdictReturn:
		es = append(es, &expr.Verdict{Kind: expr.VerdictReturn})
	case verdictAccept:
		es = append(es, &expr.Verdict{Kind: expr.VerdictAccept})
	case verdictDrop:
		es = append(es, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
	case verdictMasquerade:
		es = append(es, &expr.Masq{FullyRandom: randomFully})
	}
	return es
}

// linkName is a link's name as the kernel compares it.
func linkName(link string) []byte {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return name
}

// matchLink matches a link by its whole name; "" matches all.
func matchLink(key expr.MetaKey, link string) []expr.Any {
	if link == "" {
		return nil
	}
	return []expr.Any{&expr.Meta{Key: key, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: linkName(link)}}
}

// addressField loads the source, or the destination, into register 1 (RFC 791 section 3.1, RFC 8200 section
// 3).
func addressField(destination, ipv6 bool) *expr.Payload {
	p := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}
	if ipv6 {
		p.Offset, p.Len = 8, 16
	}
	if destination {
		p.Offset += p.Len
	}
	return p
}

func matchPrefix(destination bool, p netip.Prefix, not bool) []expr.Any {
	if !p.IsValid() {
		return nil
	}
	load := addressField(destination, p.Addr().Is6())
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
