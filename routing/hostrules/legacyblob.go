package hostrules

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"unsafe"
)

// This file reads a table of legacy iptables as getsockopt returns it. The entries stand one behind
// the other, chain after chain, in the byte order and with the alignment of this machine
// (linux/netfilter/x_tables.h, linux/netfilter_ipv4/ip_tables.h, linux/netfilter_ipv6/ip6_tables.h).

// ipv4Entry is struct ipt_entry, without the matches and the target that follow.
type ipv4Entry struct {
	_            [84]byte // struct ipt_ip
	_            uint32   // nfcache
	targetOffset uint16
	nextOffset   uint16
	comefrom     uint32
	counters     [2]uint64 // packets, bytes
}

// ipv6Entry is struct ip6t_entry.
type ipv6Entry struct {
	_            [136]byte // struct ip6t_ip6
	_            uint32
	targetOffset uint16
	nextOffset   uint16
	comefrom     uint32
	counters     [2]uint64
}

// entryLayout says where the fields of an entry are, in bytes.
type entryLayout struct{ target, next, comefrom, counters, size int }

func layoutOf(ipv6 bool) entryLayout {
	if ipv6 {
		var e ipv6Entry
		return entryLayout{int(unsafe.Offsetof(e.targetOffset)), int(unsafe.Offsetof(e.nextOffset)), int(unsafe.Offsetof(e.comefrom)),
			int(unsafe.Offsetof(e.counters)), int(unsafe.Sizeof(e))}
	}
	var e ipv4Entry
	return entryLayout{int(unsafe.Offsetof(e.targetOffset)), int(unsafe.Offsetof(e.nextOffset)), int(unsafe.Offsetof(e.comefrom)),
		int(unsafe.Offsetof(e.counters)), int(unsafe.Sizeof(e))}
}

// hooks are those of netfilter.h, in order, by the names of the chains they begin.
func hooks() [5]string { return [5]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"} }

// struct xt_entry_target: size, a name of 29 bytes, revision; then its data.
const (
	targetName    = 2
	targetNameLen = 29
	targetHeader  = 32
	errorNameLen  = 30
)

// These are the verdicts of a standard target. A verdict that is not negative is a jump to that offset.
const (
	blobDrop   = -1 // -NF_DROP - 1
	blobReturn = -5 // XT_RETURN
)

// blobTable is a table read from the kernel.
type blobTable struct {
	chains []string
	// own are our chains and the jumps to them, by the chain that they are in: a digest of each entry,
	// which leaves out counters and positions.
	own map[string][]string
	// policyDrop are the chains of the host that drop at their end.
	policyDrop map[string]bool
	// dropped counts packets that the rules of a chain of ours have dropped.
	dropped map[string]uint64
	// entries are all of the table, chainOf the chain of each, policies where those stand that are a chain's policy,
	// and jumps the chains by where their rules begin.
	entries  []blobEntry
	chainOf  []string
	policies map[int]bool
	jumps    map[int]string
}

// blobInfo has the fields of struct ipt_getinfo, without the table's size.
type blobInfo struct {
	validHooks       uint32
	entry, underflow [5]uint32 // where the chain of each hook begins, and where its policy is
}

var errBlob = errors.New("not a table of iptables")

// blobEntry is one entry, checked.
type blobEntry struct {
	at      int
	body    []byte // borrowed: part of the table
	target  string
	verdict int32  // of a standard target
	named   string // of an error target: the chain that begins
	packets uint64
}

// parseBlob reads the table of that name. Every length is checked.
func parseBlob(table string, b []byte, info blobInfo, ipv6 bool) (blobTable, error) {
	l := layoutOf(ipv6)
	var entries []blobEntry
	for at := 0; at < len(b); {
		e, err := parseEntry(b[at:], l)
		if err != nil {
			return blobTable{}, fmt.Errorf("entry at %d: %w", at, err)
		}
		e.at = at
		entries = append(entries, e)
		at += len(e.body)
	}
	return collect(table, entries, info, l), nil
}

func parseEntry(b []byte, l entryLayout) (blobEntry, error) {
	if len(b) < l.size {
		return blobEntry{}, fmt.Errorf("%w: %d bytes", errBlob, len(b))
	}
	target, next := int(binary.NativeEndian.Uint16(b[l.target:])), int(binary.NativeEndian.Uint16(b[l.next:]))
	if target < l.size || next > len(b) || target+targetHeader > next {
		return blobEntry{}, fmt.Errorf("%w: target at %d, next at %d", errBlob, target, next)
	}
	e := blobEntry{body: b[:next], packets: binary.NativeEndian.Uint64(b[l.counters:])}
	e.target = cString(b[target+targetName : target+targetName+targetNameLen])
	data := b[target+targetHeader : next]
	switch {
	case e.target == "" && len(data) >= 4:
		e.verdict = int32(binary.NativeEndian.Uint32(data))
	case e.target == "ERROR" && len(data) >= errorNameLen:
		e.named = cString(data[:errorNameLen])
	}
	return e, nil
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// collect sorts entries into chains.
func collect(table string, entries []blobEntry, info blobInfo, l entryLayout) blobTable {
	t := blobTable{own: map[string][]string{}, policyDrop: map[string]bool{}, dropped: map[string]uint64{}}
	begins, policy := map[int]string{}, map[int]bool{}
	for h, name := range hooks() {
		if info.validHooks&(1<<h) != 0 {
			begins[int(info.entry[h])] = name
			policy[int(info.underflow[h])] = true
		}
	}
	// A jump leads to the first rule of a chain, behind the entry that names it.
	names := map[int]string{}
	for _, e := range entries {
		if e.named != "" {
			names[e.at+len(e.body)] = e.named
		}
	}
	t.entries, t.policies, t.jumps = entries, policy, names
	chain := ""
	for _, e := range entries {
		if name, ok := begins[e.at]; ok {
			chain = name
			t.chains = append(t.chains, chain)
		}
		t.chainOf = append(t.chainOf, chain)
		if e.target == "ERROR" {
			chain = e.named
			if chain == "ERROR" { // the end of the table
				continue
			}
			t.chains = append(t.chains, chain)
			if ownsChain(table, chain) {
				t.own[chain] = append(t.own[chain], "chain")
			}
			continue
		}
		to := ""
		if e.target == "" && e.verdict >= 0 {
			to = names[int(e.verdict)]
		}
		if policy[e.at] && e.verdict == blobDrop {
			t.policyDrop[chain] = true
		}
		if ownsChain(table, chain) || ownsChain(table, to) {
			t.own[chain] = append(t.own[chain], e.digest(l, to))
		}
		if ownsChain(table, chain) && e.target == "" && e.verdict == blobDrop {
			t.dropped[chain] += e.packets
		}
	}
	return t
}

// digest returns a hash of the rule, which does not depend on its place in the table and its counters.
func (e blobEntry) digest(l entryLayout, to string) string {
	b := slices.Clone(e.body)
	clear(b[l.comefrom : l.comefrom+4])
	clear(b[l.counters : l.counters+16])
	if e.target == "" && e.verdict >= 0 {
		at := int(binary.NativeEndian.Uint16(b[l.target:])) + targetHeader
		clear(b[at : at+4])
	}
	h := fnv.New64a()
	_, _ = h.Write(b) // never fails
	return fmt.Sprintf("%016x %s", h.Sum64(), to)
}

// ownText lists everything of ours in the table, as text to compare.
func (t blobTable) ownText() string {
	var w strings.Builder
	for _, c := range t.chains {
		for _, r := range t.own[c] {
			fmt.Fprintf(&w, "%s %s\n", c, r)
		}
	}
	return w.String()
}
