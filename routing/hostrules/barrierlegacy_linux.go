package hostrules

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// legacyBarrier asks the table filter of legacy iptables. ok is false if it drops nothing of p.
func legacyBarrier(p Packet) (b Barrier, ok bool, err error) {
	there, err := legacyTables(p.ipv6())
	if err != nil || !slices.Contains(there, "filter") {
		return b, false, err
	}
	t, err := readLegacy("filter", p.ipv6())
	if err != nil {
		return b, false, err
	}
	chains := t.byChain()
	w := walker{rulings: func(chain string) ([]ruling, error) {
		var out []ruling
		for _, e := range chains[chain] {
			out = append(out, t.ruling(e, p))
		}
		return out, nil
	}}
	b = Barrier{Firewall: kindIptablesLegacy.String(), Table: "filter", Chain: p.Hook.String(), Owner: ownerOf("filter", t.chains)}
	f, err := w.walk(p.Hook.String(), 0)
	switch {
	case err != nil:
	case f == fateDropped:
		b.Chain = w.at
		return b, true, nil
	case f == fateEnds && t.policyDrop[p.Hook.String()]:
		b.Policy = true
		return b, true, nil
	}
	return b, false, err
}

// byChain sorts the table's rules; the policy at the end of a chain of the host is none of them.
func (t blobTable) byChain() map[string][]blobEntry {
	out := map[string][]blobEntry{}
	for i, e := range t.entries {
		if e.target == "ERROR" || t.policies[e.at] {
			continue
		}
		out[t.chainOf[i]] = append(out[t.chainOf[i]], e)
	}
	return out
}

// ruling is what e does with p.
func (t blobTable) ruling(e blobEntry, p Packet) ruling {
	r := ruling{match: legacyMatch(e.body, p)}
	switch {
	case e.target == "" && e.verdict >= 0:
		r.does, r.to = doesJump, t.jumps[int(e.verdict)]
		if r.to == "" { // to the next rule: a rule that only counts
			r.does = doesNothing
		} else if ipFlags(e.body, p.ipv6())&flagGoto != 0 {
			r.does = doesGoto
		}
	case e.target == "" && e.verdict == blobReturn:
		r.does = doesReturn
	case e.target == "" && e.verdict == blobDrop, e.target == "REJECT":
		r.does = doesDrop
	case e.target == "" && e.verdict == blobAccept:
		r.does = doesAccept
	}
	return r
}

const blobAccept = -2 // -NF_ACCEPT - 1

// Inverse flags of struct ipt_ip and ip6t_ip6, which are the same numbers, and the flag for a goto.
const (
	invIn, invOut, invSrc, invDst, invProto = 0x01, 0x02, 0x08, 0x10, 0x40
	flagFragment                            = 0x01 // of IPv4: second and further fragments
	invFragment                             = 0x20
	flagGoto                                = 0x02 // IPT_F_GOTO; in IPv6 it is 0x04
	flagGoto6                               = 0x04
)

// ipFlags are the flags of an entry, with IPv6's goto as IPv4's.
func ipFlags(b []byte, ipv6 bool) byte {
	if !ipv6 {
		return b[82]
	}
	if b[131]&flagGoto6 != 0 {
		return flagGoto
	}
	return 0
}

// legacyMatch says whether an entry, which parseEntry has checked, takes p.
func legacyMatch(b []byte, p Packet) truth {
	l := layoutOf(p.ipv6())
	var src, dst, srcMask, dstMask, links []byte
	var proto uint16
	var inverse byte
	if p.ipv6() {
		src, dst, srcMask, dstMask, links = b[0:16], b[16:32], b[32:48], b[48:64], b[64:128]
		proto, inverse = binary.NativeEndian.Uint16(b[128:]), b[132]
	} else {
		src, dst, srcMask, dstMask, links = b[0:4], b[4:8], b[8:12], b[12:16], b[16:80]
		proto, inverse = binary.NativeEndian.Uint16(b[80:]), b[83]
		if b[82]&flagFragment != 0 && inverse&invFragment == 0 {
			return no
		}
	}
	within := func(a netip.Addr, want, mask []byte) bool {
		for i, x := range a.AsSlice() {
			if x&mask[i] != want[i]&mask[i] {
				return false
			}
		}
		return true
	}
	link := func(name string, at int) bool {
		var have [16]byte
		copy(have[:15], name)
		want, mask := links[at:at+16], links[32+at:32+at+16]
		for i := range have {
			if have[i]&mask[i] != want[i]&mask[i] {
				return false
			}
		}
		return true
	}
	t := truthOf(within(p.Src, src, srcMask) != (inverse&invSrc != 0)).
		and(truthOf(within(p.Dst, dst, dstMask) != (inverse&invDst != 0))).
		and(truthOf(link(p.In, 0) != (inverse&invIn != 0))).
		and(truthOf(link(p.Out, 16) != (inverse&invOut != 0)))
	if proto != 0 {
		t = t.and(truthOf((proto == uint16(p.Protocol)) != (inverse&invProto != 0)))
	}
	target := int(binary.NativeEndian.Uint16(b[l.target:]))
	for at := l.size; at+targetHeader <= target; { // struct xt_entry_match is as struct xt_entry_target
		size := int(binary.NativeEndian.Uint16(b[at:]))
		if size < targetHeader || at+size > target {
			return maybe
		}
		name := cString(b[at+targetName : at+targetName+targetNameLen])
		t = t.and(xtMatch(name, b[at+targetName+targetNameLen], b[at+targetHeader:at+size], p))
		at += size
	}
	return t
}

// xtMatch says whether a match of xtables takes p. info is its structure, in this machine's byte order.
func xtMatch(name string, revision byte, info []byte, p Packet) truth {
	u16 := func(at int) uint16 { return binary.NativeEndian.Uint16(info[at:]) }
	between := func(port uint16, at int) bool { return u16(at) <= port && port <= u16(at+2) }
	switch {
	case name == "comment":
		return yes
	case name == "udp" && len(info) >= 9, name == "tcp" && len(info) >= 12: // struct xt_udp, xt_tcp: ports, then flags
		if name == "udp" != (p.Protocol == 17) {
			return no
		}
		inverse := info[8]
		if name == "tcp" {
			if inverse = info[11]; info[9] != 0 { // flags of TCP are looked at
				return maybe
			}
		}
		return truthOf(between(p.SrcPort, 0) != (inverse&1 != 0)).and(truthOf(between(p.DstPort, 4) != (inverse&2 != 0)))
	case name == "state" && len(info) >= 4: // struct xt_state_info
		return truthOf(binary.NativeEndian.Uint32(info)&p.state() != 0)
	case name == "conntrack" && revision >= 2 && len(info) >= 154 && u16(146) == 1: // only the state is looked at
		return truthOf(uint32(u16(150))&p.state() != 0).xor(u16(148)&1 != 0)
	case name == "multiport" && len(info) >= 48: // struct xt_multiport_v1
		return multiport(info, p)
	case name == "mark" && revision == 1 && len(info) >= 9: // struct xt_mark_mtinfo1; the packet has none
		return truthOf(binary.NativeEndian.Uint32(info) == 0).xor(info[8] != 0)
	}
	return maybe
}

func multiport(info []byte, p Packet) truth {
	count := min(int(info[1]), 15)
	found := false
	for i := 0; i < count; i++ {
		first := binary.NativeEndian.Uint16(info[2+2*i:])
		last := first
		if info[32+i] != 0 && i+1 < count { // it begins a range
			i++
			last = binary.NativeEndian.Uint16(info[2+2*i:])
		}
		src, dst := first <= p.SrcPort && p.SrcPort <= last, first <= p.DstPort && p.DstPort <= last
		found = found || info[0] != 1 && dst || info[0] != 0 && src
	}
	return truthOf(found).xor(info[47] != 0)
}

// linkBytes is a name as the kernel pads it.
func linkBytes(name string) []byte {
	var b [16]byte
	copy(b[:15], name)
	return b[:]
}
