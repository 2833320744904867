package hostrules

import (
	"strings"
	"testing"
)

// A legacy table is read as iptables-save shows it, and is read the same after others have changed other parts of it.
func TestLegacyTablesAreRead(t *testing.T) {
	inNamespace(t)
	for _, family := range []string{"iptables", "ip6tables"} {
		ipt, ipv6 := family+"-legacy", family == "ip6tables"
		sh(t, ipt+" -N THEIRS")
		sh(t, ipt+" -N FLANNEL-FWD")
		sh(t, ipt+" -A FORWARD -j FLANNEL-FWD")
		sh(t, ipt+" -A FLANNEL-FWD -j DROP")
		sh(t, ipt+" -P FORWARD DROP")
		first, err := readLegacy("filter", ipv6)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(first.chains, " "); got != "INPUT FORWARD OUTPUT FLANNEL-FWD THEIRS" {
			t.Errorf("chains %s", got)
		}
		if !first.policyDrop["FORWARD"] || first.policyDrop["INPUT"] || len(first.own["FORWARD"]) != 1 || len(first.own["FLANNEL-FWD"]) != 3 {
			t.Errorf("want a jump, and a chain with a rule and its end: %+v", first)
		}
		sh(t, ipt+" -I FORWARD -j THEIRS")
		sh(t, ipt+" -A THEIRS -j RETURN")
		sh(t, ipt+" -N AAA")
		if now, err := readLegacy("filter", ipv6); err != nil || now.ownText() != first.ownText() {
			t.Errorf("%v: somebody else's rules are taken for ours\n%s\n%s", err, first.ownText(), now.ownText())
		}
		sh(t, ipt+" -R FLANNEL-FWD 1 -j ACCEPT")
		if now, err := readLegacy("filter", ipv6); err != nil || now.ownText() == first.ownText() {
			t.Errorf("%v: a changed rule is not seen", err)
		}
	}
	names, err := legacyTables(false)
	if err != nil || strings.Join(names, " ") != "filter" {
		t.Errorf("reading made tables: %v %v", names, err)
	}
}

// Nothing that the kernel could return makes parseBlob panic.
func FuzzParseBlob(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint32(0), uint32(0), true)
	f.Add(make([]byte, 400), uint32(31), uint32(0), uint32(112), false)
	f.Fuzz(func(t *testing.T, b []byte, valid, entry, under uint32, ipv6 bool) {
		info := blobInfo{validHooks: valid}
		for i := range info.entry {
			info.entry[i], info.underflow[i] = entry*uint32(i), under*uint32(i)
		}
		table, err := parseBlob("filter", b, info, ipv6)
		if err == nil {
			_ = table.ownText()
		}
	})
}

func FuzzNetlinkAttributes(f *testing.F) {
	f.Add([]byte{8, 0, 1, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		eachAttr(b, func(_ uint16, v []byte) { n += len(v) })
		if n > len(b) {
			t.Errorf("%d bytes of values in %d", n, len(b))
		}
		var r nfRule
		r.expression(b)
	})
}
