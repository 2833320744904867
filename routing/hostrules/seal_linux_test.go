package hostrules

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func testSeal() *Seal {
	return &Seal{
		Devices: []string{"flannel-wg", "flannel-wg-v6"}, Underlay: "eth0",
		Plain:    []netip.Prefix{netip.MustParsePrefix("10.42.8.0/24"), netip.MustParsePrefix("fd42:0:0:8::/64")},
		Hosts:    []netip.Addr{netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("2001:db8::8")},
		Admitted: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}
}

// TestSeal has the rules of both families word by word. Who comes by the underlay and is no such peer is dropped before anything is let in.
func TestSeal(t *testing.T) {
	c := Config{Network: dualStack(false), seal: testSeal()}
	v4, v6 := desired(c, testSet(), Guard{}, nil)
	text := func(f familyRules) string {
		var w strings.Builder
		for _, rs := range [][]rule{f.sealedIn, f.sealedOut} {
			for _, r := range rs {
				fmt.Fprintln(&w, strings.Replace(r.iptables(false), commentMatch(commentSealed)+" ", "", 1))
			}
		}
		return w.String()
	}
	const want4 = `-i flannel-wg -j RETURN
-i flannel-wg-v6 -j RETURN
-i lo -j RETURN
-s 10.42.8.0/24 -i eth0 -j RETURN
-s 10.42.0.0/16 -i eth0 -j DROP
-s 192.0.2.8/32 -d 10.42.0.0/16 -i eth0 -j RETURN
-s 198.51.100.0/24 -d 10.42.0.0/16 -i eth0 -j RETURN
-d 10.42.0.0/16 -i eth0 -j DROP
-s 10.42.7.0/24 -j RETURN
-s 10.42.0.0/16 -j DROP
-o flannel-wg -j RETURN
-o flannel-wg-v6 -j RETURN
-o lo -j RETURN
-d 10.42.8.0/24 -o eth0 -j RETURN
-d 10.42.0.0/16 -o eth0 -j DROP
-d 10.42.7.0/24 -j RETURN
-d 10.42.0.0/16 -j DROP
`
	if got := text(v4); got != want4 {
		t.Errorf("got\n%s\nwant\n%s", got, want4)
	}
	want6 := strings.NewReplacer("-s 198.51.100.0/24 -d 10.42.0.0/16 -i eth0 -j RETURN\n", "", "10.42.8.0/24", "fd42:0:0:8::/64", "10.42.0.0/16", "fd42::/48",
		"10.42.7.0/24", "fd42:0:0:7::/64", "192.0.2.8/32", "2001:db8::8/128").Replace(want4)
	if got := text(v6); got != want6 {
		t.Errorf("got\n%s\nwant\n%s", got, want6)
	}
	c.seal = &Seal{Devices: []string{"flannel-wg"}} // the underlay is in another namespace
	if v4, _ = desired(c, testSet(), Guard{}, nil); strings.Contains(text(v4), "eth0") || !strings.HasSuffix(text(v4), "-s 10.42.0.0/16 -j DROP\n-o flannel-wg -j RETURN\n-o lo -j RETURN\n-d 10.42.7.0/24 -j RETURN\n-d 10.42.0.0/16 -j DROP\n") {
		t.Errorf("%s", text(v4))
	}
}

// A seal is in each firewall as it should be, is kept by the next process with its counters, counts what it drops, and goes when it is no longer wanted.
func TestSealInTheKernel(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			sh(t, "ip link add eth0 type veth peer name far")
			sh(t, "ip link set far up")
			sh(t, "ip address add 192.0.2.1/24 dev eth0")
			sh(t, "ip link set eth0 up")
			sh(t, "ip route add 10.42.0.0/16 via 192.0.2.9 dev eth0")
			c := testConfig(f)
			for _, line := range map[kind][]string{ // what somebody else accepts is no reason to let it pass
				kindNFTables:       {"nft add table ip theirs", "nft add chain ip theirs c { type filter hook postrouting priority -300 ; policy accept ; }"},
				kindIptablesNFT:    {"iptables-nft -t mangle -A POSTROUTING -j ACCEPT"},
				kindIptablesLegacy: {"iptables-legacy -t mangle -A POSTROUTING -j ACCEPT"},
			}[f.kind] {
				sh(t, line)
			}
			r := testRules(t, f, c)
			apply(t, r, testSet("192.0.2.8"))
			if there := r.Present(); !r.Seal(testSeal()) || r.Seal(testSeal()) || !there || r.Present() {
				t.Errorf("what changes is not said, or what does not; rules are there: %t, and with a seal %t", there, r.Present())
			}
			apply(t, r, testSet("192.0.2.8"))
			if !r.Present() {
				t.Error("the seal is not there")
			}
			for _, line := range map[kind][]string{
				kindNFTables:       {"nft delete table ip6 flannel-ipv6"},
				kindIptablesNFT:    {"ip6tables-nft -t mangle -F", "ip6tables-nft -t mangle -X"},
				kindIptablesLegacy: {"ip6tables-legacy -t mangle -F", "ip6tables-legacy -t mangle -X"},
			}[f.kind] {
				sh(t, line)
			}
			next := testRules(t, f, c)
			next.Seal(testSeal())
			if r.Present() || next.Present() {
				t.Error("the seal is there, and one family has none")
			}
			apply(t, r, testSet("192.0.2.8"))
			if !r.Present() || !next.Present() {
				t.Error("the seal is not there again")
			}
			send := func(to string) {
				t.Helper()
				out, err := net.Dial("udp4", to)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = out.Write([]byte("x")) // it may be dropped
				_ = out.Close()
			}
			send("10.42.8.8:9") // a peer to whom it goes as it is
			send("10.42.9.9:9")
			send("10.42.7.9:9") // a pod of this node for which there is no other way
			apply(t, r, testSet("192.0.2.8"))
			if d := r.Status().Dropped; d.Plain != 2 {
				t.Errorf("%+v, want two in plain", d)
			}
			before := drops(withMarks(t, f)) // jumps count whatever the host says besides
			again := testRules(t, f, c)
			again.Seal(testSeal())
			apply(t, again, testSet("192.0.2.8"))
			if after := drops(withMarks(t, f)); after != before || strings.Count(after, "10.42.7.0/24")+strings.Count(after, "10.42.0.0/16") < 4 {
				t.Errorf("got\n%s\nbefore\n%s", after, before)
			}
			again.Seal(nil)
			apply(t, again, testSet("192.0.2.8"))
			if text := listing(t, f); strings.Contains(text, commentSealed) || strings.Contains(strings.ToLower(text), "sealed") {
				t.Errorf("something is left:\n%s", text)
			}
		})
	}
}

// drops are the lines of a listing about what is dropped.
func drops(listing string) string {
	var w strings.Builder
	for line := range strings.Lines(listing) {
		if strings.Contains(strings.ToLower(line), " drop") {
			w.WriteString(line)
		}
	}
	return w.String()
}
