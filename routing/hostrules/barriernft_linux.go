package hostrules

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Barriers lists the chains that drop p for certain: at its hook, and for a packet to this host at those before. It
// reads, without a lock or a process, and changes nothing.
func Barriers(p Packet) ([]Barrier, error) {
	var out []Barrier
	b, ok, err := legacyBarrier(p)
	if ok {
		out = append(out, b)
	}
	found, nftErr := nftBarriers(p)
	if errors.Is(nftErr, errNoNFTables) {
		nftErr = nil
	}
	return append(out, found...), errors.Join(err, nftErr)
}

// Changes returns a number that is another one after each change of nftables' rules, of which iptables' nft flavour is
// part; 0 if the kernel does not count.
func Changes() uint32 {
	n, _ := nfGeneration() // without it nobody can tell
	return n
}

func nftBarriers(p Packet) ([]Barrier, error) {
	chains, err := nfChains(unix.NFPROTO_UNSPEC)
	if err != nil {
		return nil, err
	}
	names := map[string][]string{}
	for _, c := range chains {
		names[c.table] = append(names[c.table], c.name)
	}
	var out []Barrier
	for _, c := range chains {
		family := c.family == unix.NFPROTO_INET || c.family == nfFamily(p.ipv6())
		if !c.base || !family || Hook(c.hook) != p.Hook || c.filter != "filter" || isOwnTable(c.table) {
			continue
		}
		n := nftTable{family: c.family, table: c.table, packet: p}
		w := walker{rulings: n.rulings}
		f, err := w.walk(c.name, 0)
		if err != nil {
			return out, err
		}
		b := Barrier{Firewall: kindNFTables.String(), Table: c.table, Chain: c.name, Owner: ownerOf(c.table, names[c.table])}
		if slices.Contains(iptablesTables(), c.table) && c.family != unix.NFPROTO_INET {
			b.Firewall = kindIptablesNFT.String()
		}
		switch {
		case f == fateDropped:
			b.Chain = w.at
			out = append(out, b)
		case f == fateEnds && c.drop:
			b.Policy = true
			out = append(out, b)
		}
	}
	return out, nil
}

// nftTable follows a packet through a table of nftables.
type nftTable struct {
	family uint8
	table  string
	packet Packet
}

func (n *nftTable) rulings(chain string) ([]ruling, error) {
	msgs, err := nfDump(unix.NFT_MSG_GETRULE, n.family,
		nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(n.table)), nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(chain)))
	if err != nil {
		return nil, err
	}
	var out []ruling
	for _, m := range msgs {
		in, table := "", ""
		var expressions []byte
		eachAttr(m.attrs, func(kind uint16, v []byte) {
			switch kind {
			case unix.NFTA_RULE_CHAIN:
				in = cString(v)
			case unix.NFTA_RULE_TABLE:
				table = cString(v)
			case unix.NFTA_RULE_EXPRESSIONS:
				expressions = v
			}
		})
		if in == chain && table == n.table && m.family == n.family { // a kernel that does not narrow the listing gives all
			out = append(out, n.ruling(expressions))
		}
	}
	return out, nil
}

// registers are the kernel's, as words of four bytes; what is not known is not there.
type registers struct {
	b     [128]byte
	known [128]bool
}

// place is where a register is, in bytes (nft_parse_register).
func place(reg uint32) int {
	if reg <= unix.NFT_REG_4 {
		return int(reg) * 16
	}
	return int(reg-unix.NFT_REG32_00+4) * 4
}

func (r *registers) set(reg uint32, v []byte) {
	at := place(reg)
	for i := 0; i < 16 && at+i < len(r.b); i++ {
		r.known[at+i] = v != nil && i < (len(v)+3)/4*4
		if r.b[at+i] = 0; i < len(v) {
			r.b[at+i] = v[i]
		}
	}
}

// get returns n bytes; nil if one is not known.
func (r *registers) get(reg uint32, n int) []byte {
	at := place(reg)
	if n <= 0 || at < 0 || at+n > len(r.b) || slices.Contains(r.known[at:at+n], false) {
		return nil
	}
	return r.b[at : at+n]
}

// attrs are the attributes of an expression.
type attrs map[uint16][]byte

func attrsOf(b []byte) attrs {
	out := attrs{}
	eachAttr(b, func(kind uint16, v []byte) { out[kind] = v })
	return out
}

// value is what NFTA_DATA_VALUE holds.
func (a attrs) value(kind uint16) []byte { return attrsOf(a[kind])[unix.NFTA_DATA_VALUE] }

// ruling evaluates a rule's expressions one after the other.
func (n *nftTable) ruling(expressions []byte) ruling {
	r := ruling{match: yes}
	var regs registers
	eachAttr(expressions, func(_ uint16, e []byte) {
		x := attrsOf(e)
		if r.match != no {
			n.evaluate(cString(x[unix.NFTA_EXPR_NAME]), attrsOf(x[unix.NFTA_EXPR_DATA]), &regs, &r)
		}
	})
	return r
}

func (n *nftTable) evaluate(name string, a attrs, regs *registers, r *ruling) {
	switch name {
	case "counter", "log", "notrack", "comment", "last", "objref", "hash", "numgen", "masq", "nat", "redir":
	case "meta":
		if a[unix.NFTA_META_SREG] == nil {
			regs.set(be32(a[unix.NFTA_META_DREG]), n.meta(be32(a[unix.NFTA_META_KEY])))
		}
	case "ct":
		if a[unix.NFTA_CT_SREG] == nil {
			regs.set(be32(a[unix.NFTA_CT_DREG]), n.ctValue(be32(a[unix.NFTA_CT_KEY])))
		}
	case "payload":
		if a[unix.NFTA_PAYLOAD_SREG] == nil {
			regs.set(be32(a[unix.NFTA_PAYLOAD_DREG]), n.payload(be32(a[unix.NFTA_PAYLOAD_BASE]), int(be32(a[unix.NFTA_PAYLOAD_OFFSET])), int(be32(a[unix.NFTA_PAYLOAD_LEN]))))
		}
	case "bitwise":
		regs.bitwise(a)
	case "cmp":
		r.match = r.match.and(regs.compare(a))
	case "range":
		from, to := a.value(unix.NFTA_RANGE_FROM_DATA), a.value(unix.NFTA_RANGE_TO_DATA)
		have := regs.get(be32(a[unix.NFTA_RANGE_SREG]), len(from))
		if have == nil || len(to) != len(from) {
			r.match = r.match.and(maybe)
			return
		}
		within := bytes.Compare(from, have) <= 0 && bytes.Compare(have, to) <= 0
		r.match = r.match.and(truthOf(within).xor(be32(a[unix.NFTA_RANGE_OP]) == unix.NFT_RANGE_NEQ))
	case "lookup":
		n.lookup(a, regs, r)
	case "match":
		revision := byte(be32(a[unix.NFTA_MATCH_REV]))
		r.match = r.match.and(xtMatch(cString(a[unix.NFTA_MATCH_NAME]), revision, a[unix.NFTA_MATCH_INFO], n.packet))
	case "target":
		if t := cString(a[unix.NFTA_TARGET_NAME]); t == "REJECT" || t == "DROP" {
			r.does = doesDrop
		}
	case "reject":
		r.does = doesDrop
	case "queue": // a program decides
		r.does = doesAccept
	case "immediate":
		data := attrsOf(a[unix.NFTA_IMMEDIATE_DATA])
		if v := data[unix.NFTA_DATA_VERDICT]; v != nil {
			r.verdict(v)
			return
		}
		regs.set(be32(a[unix.NFTA_IMMEDIATE_DREG]), data[unix.NFTA_DATA_VALUE])
	default: // limit, quota, fib, rt, socket and others
		for _, dreg := range []uint16{1} {
			if reg := be32(a[dreg]); reg != 0 && reg < 32 && (name == "fib" || name == "rt" || name == "socket" || name == "exthdr" || name == "osf") {
				regs.set(reg, nil)
				return
			}
		}
		r.match = r.match.and(maybe)
	}
}

// verdict reads one of the kernel's.
func (r *ruling) verdict(v []byte) {
	a := attrsOf(v)
	r.to = cString(a[unix.NFTA_VERDICT_CHAIN])
	const jump, goTo, returns = -3, -4, -5 // NFT_JUMP, NFT_GOTO, NFT_RETURN
	switch code := int32(be32(a[unix.NFTA_VERDICT_CODE])); code {
	case nfDrop:
		r.does = doesDrop
	case 1: // NF_ACCEPT
		r.does = doesAccept
	case jump:
		r.does = doesJump
	case goTo:
		r.does = doesGoto
	case returns:
		r.does = doesReturn
	}
}

// native is a number in this machine's order, as most values of meta and ct are.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// meta returns what is known of the packet besides its bytes; nil if it is not.
func (n *nftTable) meta(key uint32) []byte {
	p := n.packet
	link := func(name string) []byte {
		if i, err := net.InterfaceByName(name); err == nil {
			return native(uint32(i.Index))
		}
		return nil
	}
	switch key {
	case unix.NFT_META_IIFNAME:
		return linkBytes(p.In)
	case unix.NFT_META_OIFNAME:
		return linkBytes(p.Out)
	case unix.NFT_META_IIF:
		return link(p.In)
	case unix.NFT_META_OIF:
		if p.Out == "" {
			return native(0)
		}
		return link(p.Out)
	case unix.NFT_META_L4PROTO:
		return []byte{p.Protocol}
	case unix.NFT_META_NFPROTO:
		return []byte{nfFamily(p.ipv6())}
	case unix.NFT_META_PROTOCOL:
		if p.ipv6() {
			return []byte{0x86, 0xdd}
		}
		return []byte{0x08, 0x00}
	case unix.NFT_META_MARK:
		return native(0)
	case unix.NFT_META_PKTTYPE:
		return []byte{0} // PACKET_HOST
	}
	return nil
}

// ctValue is what connection tracking knows of the packet's flow.
func (n *nftTable) ctValue(key uint32) []byte {
	switch {
	case key == unix.NFT_CT_STATE:
		return native(n.packet.state())
	case n.packet.Answer: // what else there is, only the flow itself knows
		return nil
	case key == unix.NFT_CT_STATUS, key == unix.NFT_CT_MARK:
		return native(0)
	case key == unix.NFT_CT_DIRECTION:
		return []byte{0}
	}
	return nil
}

func (n *nftTable) payload(base uint32, offset, size int) []byte {
	network, transport := n.packet.header()
	from := network
	switch base {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		from = transport
	default:
		return nil
	}
	if offset < 0 || size <= 0 || offset+size > len(from) {
		return nil
	}
	return from[offset : offset+size]
}

func (r *registers) bitwise(a attrs) {
	n := int(be32(a[unix.NFTA_BITWISE_LEN]))
	have, mask, xor := r.get(be32(a[unix.NFTA_BITWISE_SREG]), n), a.value(unix.NFTA_BITWISE_MASK), a.value(unix.NFTA_BITWISE_XOR)
	if have == nil || len(mask) < n || len(xor) < n { // a shift, or by another register
		r.set(be32(a[unix.NFTA_BITWISE_DREG]), nil)
		return
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = have[i]&mask[i] ^ xor[i]
	}
	r.set(be32(a[unix.NFTA_BITWISE_DREG]), out)
}

func (r *registers) compare(a attrs) truth {
	want := a.value(unix.NFTA_CMP_DATA)
	have := r.get(be32(a[unix.NFTA_CMP_SREG]), len(want))
	if have == nil {
		return maybe
	}
	c := bytes.Compare(have, want)
	switch be32(a[unix.NFTA_CMP_OP]) {
	case unix.NFT_CMP_EQ:
		return truthOf(c == 0)
	case unix.NFT_CMP_NEQ:
		return truthOf(c != 0)
	case unix.NFT_CMP_LT:
		return truthOf(c < 0)
	case unix.NFT_CMP_LTE:
		return truthOf(c <= 0)
	case unix.NFT_CMP_GT:
		return truthOf(c > 0)
	case unix.NFT_CMP_GTE:
		return truthOf(c >= 0)
	}
	return maybe
}

// element is one of a set's or a map's, or the end of a range.
type element struct {
	key, data []byte
	end, all  bool // it ends a range; it is the map's default
}

// lookup looks for the register in a set, or for its verdict in a map.
func (n *nftTable) lookup(a attrs, regs *registers, r *ruling) {
	set := cString(a[unix.NFTA_LOOKUP_SET])
	elements, interval, err := n.elements(set)
	var have []byte
	if len(elements) > 0 {
		have = regs.get(be32(a[unix.NFTA_LOOKUP_SREG]), len(elements[0].key))
	}
	dreg, inverse := a[unix.NFTA_LOOKUP_DREG], be32(a[unix.NFTA_LOOKUP_FLAGS])&unix.NFT_LOOKUP_F_INV != 0
	found, ok := element{}, false
	switch {
	case err != nil, len(elements) > 0 && have == nil:
		if dreg != nil {
			regs.set(be32(dreg), nil)
		}
		r.match = r.match.and(maybe)
		return
	case interval:
		found, ok = inRanges(elements, have)
	default:
		i := slices.IndexFunc(elements, func(e element) bool { return !e.all && bytes.Equal(e.key, have) })
		if ok = i >= 0; ok {
			found = elements[i]
		}
	}
	if i := slices.IndexFunc(elements, func(e element) bool { return e.all }); !ok && i >= 0 {
		found, ok = elements[i], true
	}
	r.match = r.match.and(truthOf(ok).xor(inverse))
	if dreg == nil || !ok {
		return
	}
	data := attrsOf(found.data)
	if v := data[unix.NFTA_DATA_VERDICT]; v != nil {
		r.verdict(v)
		return
	}
	regs.set(be32(dreg), data[unix.NFTA_DATA_VALUE])
}

// inRanges finds the range that have is in. A range begins with an element, and ends before one that is an end.
func inRanges(elements []element, have []byte) (found element, ok bool) {
	elements = slices.DeleteFunc(slices.Clone(elements), func(e element) bool { return e.all })
	slices.SortFunc(elements, func(a, b element) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(truthOf(b.end), truthOf(a.end)))
	})
	for _, e := range elements {
		if bytes.Compare(e.key, have) > 0 {
			break
		}
		found, ok = e, !e.end
	}
	return found, ok
}

// errNotSimple is for sets that are not read here.
var errNotSimple = errors.New("a set of concatenated ranges")

// elements lists a set.
func (n *nftTable) elements(set string) (out []element, interval bool, err error) {
	msgs, err := nfDump(unix.NFT_MSG_GETSETELEM, n.family,
		nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_TABLE, nl.ZeroTerminated(n.table)), nl.NewRtAttr(unix.NFTA_SET_ELEM_LIST_SET, nl.ZeroTerminated(set)))
	if err != nil {
		return nil, false, err
	}
	const keyEnd = 10                         // NFTA_SET_ELEM_KEY_END
	const intervalEnd, catchAll uint32 = 1, 2 // NFT_SET_ELEM_INTERVAL_END, NFT_SET_ELEM_CATCHALL
	for _, m := range msgs {
		eachAttr(attrsOf(m.attrs)[unix.NFTA_SET_ELEM_LIST_ELEMENTS], func(_ uint16, v []byte) {
			a := attrsOf(v)
			flags := be32(a[unix.NFTA_SET_ELEM_FLAGS])
			if a[keyEnd] != nil {
				err = errNotSimple
			}
			e := element{key: a.value(unix.NFTA_SET_ELEM_KEY), data: a[unix.NFTA_SET_ELEM_DATA], end: flags&intervalEnd != 0, all: flags&catchAll != 0}
			interval = interval || e.end
			out = append(out, e)
		})
	}
	slices.SortStableFunc(out, func(a, b element) int { return cmp.Compare(len(b.key), len(a.key)) }) // the default, without a key, last
	return out, interval, err
}
