package routing

import (
	"fmt"
	"strings"
	"testing"
)

// TestDiff has what a reload would change: what peers see before the rest, no secret, and who does not hear
// whom.
func TestDiff(t *testing.T) {
	const cuts = ": this node and those that have the other one do not hear each other"
	psk := func(last string) string { return `"Type":"wireguard","psk":"` + testPSK[:40] + last + `"` }
	for _, c := range []struct {
		now, then string
		want      []string
	}{
		{`"Type":"udp"`, `"type":"UDP","Port":8285`, nil},
		{`"Type":"udp"`, `"Type":"udp","Port":9000`, []string{"port from 8285 to 9000"}},
		{`"Type":"udp","MTU":1400`, `"Type":"udp","SourceCheck":"off"`,
			[]string{`(SourceCheck from the default to "off")`, "(MTU from 1400 to the default)"}},
		{`"Type":"udp"`, `"Type":"vxlan","VNI":7`, []string{"type from udp to vxlan", "port from 8285 to 8472"}},
		{`"Type":"vxlan"`, `"Type":"vxlan","vni":7,"Learning":true`,
			[]string{"VNI from 1 to 7" + cuts, "(Learning from the default to true)"}},
		{psk("HyA="), psk("HyA="), nil},
		{psk("HyA="), psk("HyE="), []string{"PSK" + cuts}},
		{`"Type":"auto","Encrypt":"always"`, `"Type":"auto","Encrypt":"between-links"`,
			[]string{`Encrypt from "always" to "between-links"`}},
		{`"Type":"auto"`, `"Type":"auto","Encrypt":"always"`,
			[]string{"port from 8472 to 51820", `Encrypt from "" to "always"` + cuts}},
		{`"Type":"wireguard"`, `"Type":"auto","Encrypt":"always"`, []string{"type from wireguard to auto"}},
	} {
		var ns [2]Network
		for i, backend := range []string{c.now, c.then} {
			var err error
			if ns[i], err = Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{` + backend + `}}`)); err != nil {
				t.Fatalf("%s: %v", backend, err)
			}
		}
		var got []string
		for _, x := range ns[0].Diff(ns[1]) {
			text := x.String()
			if !x.Seen {
				text = "(" + text + ")"
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) || strings.Contains(fmt.Sprint(got), testPSK[:10]) {
			t.Errorf("%s to %s:\n got %q\nwant %q", c.now, c.then, got, c.want)
		}
	}
	if got := (Network{}).Diff(Network{}); got != nil {
		t.Errorf("none: %v", got)
	}
}
