package hostrules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"weft/lease"
)

// lines are rules as iptables writes them, without comments, with what only nftables has behind.
func lines(rules []rule) string {
	var w strings.Builder
	for _, r := range rules {
		fmt.Fprint(&w, strings.Replace(r.iptables(false), commentMatch(r.comment)+" ", "", 1))
		for word, on := range map[string]bool{" in " + r.in: r.in != "", " out " + r.out: r.out != ""} {
			if on {
				fmt.Fprint(&w, word)
			}
		}
		fmt.Fprintln(&w)
	}
	return w.String()
}

// In a chain of flannel's, rules of another network stay, and ours are put right.
func TestPayload(t *testing.T) {
	s := scope{netip.MustParsePrefix("10.42.0.0/16")}
	accept, nat := places()[0], places()[1]
	f := desiredFamily(Config{Masquerade: true, Forward: true}, s[0], netip.MustParsePrefix("10.42.7.0/24"), nil,
		Guard{}, false)
	forward, masquerade := accept.rulesFor(f, false), nat.rulesFor(f, false)
	all := func(p place, rules []string) string {
		text := ":" + p.chain + " - [0:0]\n"
		for _, r := range rules {
			text += "-A " + p.chain + " " + r + "\n"
		}
		return text
	}
	jump := func(p place) string { return "-A " + p.from + " " + p.jump() + "\n" }
	const theirs = "-A FLANNEL-FWD -s 10.99.0.0/16 -j ACCEPT\n"
	another := "-A FLANNEL-FWD -s 10.98.0.0/16 " + commentMatch(commentForward) + " -j ACCEPT\n"
	for _, x := range []struct {
		name string
		p    place
		have string
		want []string
		says string // lines; "" for nothing to do
	}{
		{"nothing there", accept, ":FORWARD ACCEPT [0:0]\n", forward, all(accept, forward) + jump(accept)},
		{"all there", accept, ":FORWARD DROP [5:500]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j THEIRS\n" +
			jump(accept) + all(accept, forward), forward, ""},
		{"nothing there, and nothing wanted", accept, ":FORWARD ACCEPT [0:0]\n", nil, ""},
		{"no longer wanted", accept, all(accept, forward) + jump(accept), nil,
			"-D FORWARD " + accept.jump() + "\n-F FLANNEL-FWD\n-X FLANNEL-FWD\n"},
		{"a rule without an address in our chain", accept,
			all(accept, append([]string{"-j DROP"}, forward...)) + jump(accept), forward, all(accept, forward)},
		{"flannel's jump", accept, all(accept, forward) + jump(accept) + "-A FORWARD -j FLANNEL-FWD\n", forward,
			"-D FORWARD -j FLANNEL-FWD\n"},
		{"a comment that names the chain", accept,
			":FORWARD ACCEPT [0:0]\n-A FORWARD -m comment --comment \"x -j FLANNEL-FWD\" -j ACCEPT\n", nil, ""},
		{"another network, and nothing of ours", accept, ":FLANNEL-FWD - [0:0]\n" + theirs + jump(accept), forward,
			"-A FLANNEL-FWD " + forward[0] + "\n-A FLANNEL-FWD " + forward[1] + "\n"},
		{"beside another network", accept, all(accept, forward) + theirs + jump(accept), forward, ""},
		{"ours goes, another's stays", accept, all(accept, forward) + another + jump(accept), nil,
			"-D FLANNEL-FWD " + forward[0] + "\n-D FLANNEL-FWD " + forward[1] + "\n"},
		{"ours goes, a flannel's stays", accept, all(accept, forward) + theirs + jump(accept) +
			"-A FORWARD -j FLANNEL-FWD\n", nil, "-D FLANNEL-FWD " + forward[0] + "\n-D FLANNEL-FWD " + forward[1] +
			"\n-D FORWARD " + accept.jump() + "\n"},
		{"a living flannel's jump", accept, all(accept, forward) + theirs + jump(accept) +
			"-A FORWARD -j FLANNEL-FWD\n", forward, ""},
		{"masquerading beside another network", nat,
			all(nat, append(slices.Clone(masquerade), "-s 10.99.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE")) + jump(nat),
			masquerade, ""},
		{"a rule of another configuration", nat,
			all(nat, append([]string{"-d 192.0.2.0/24 " + commentMatch(commentMasquerade) + " -j RETURN"},
				masquerade...)) + jump(nat),
			masquerade, all(nat, masquerade)},
	} {
		t.Run(x.name, func(t *testing.T) {
			have := parseSave("*" + x.p.table + "\n:FORWARD ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n" + x.have +
				"COMMIT\n")[x.p.table]
			want := x.says
			if want != "" {
				want = "*" + x.p.table + "\n" + x.says + "COMMIT\n"
			}
			if got := x.p.payload(have, x.want, s); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// After the payload is restored nothing of others' is touched, whatever iptables-save printed before.
func FuzzPayload(f *testing.F) {
	f.Add(":FORWARD ACCEPT [0:0]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\n")
	f.Add(":WEFT-X - [0:0]\n-A WEFT-X\n-A\n:\n*\n")
	f.Fuzz(func(t *testing.T, text string) {
		have := parseSave("*filter\n" + text + "COMMIT\n")["filter"]
		p := places()[0]
		for line := range strings.Lines(p.payload(have, []string{"-s 10.0.0.0/8 -j ACCEPT"},
			scope{netip.MustParsePrefix("10.0.0.0/8")})) {
			w := strings.Fields(line)
			if len(w) < 2 || strings.TrimPrefix(w[0], ":") == p.chain || w[1] == p.chain {
				// the table, COMMIT, our chain
				continue
			}
			if target(strings.Join(w[2:], " ")) != p.chain {
				t.Errorf("%q is not about us", line)
			}
		}
	})
}

func TestTarget(t *testing.T) {
	for rule, want := range map[string]string{
		"-j FLANNEL-FWD":                                           "FLANNEL-FWD",
		"-s 10.0.0.0/8 -g KUBE-SVC-3":                              "KUBE-SVC-3",
		`-m comment --comment "x -j Y" -j ACCEPT`:                  "ACCEPT",
		`-m comment --comment "a \" -j Y" -j ACCEPT`:               "ACCEPT",
		`-m comment --comment "one" -m comment --comment two -j Z`: "Z",
		"-p udp": "", "-j": "", "": "",
	} {
		if got := target(rule); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

func TestPreferFlavour(t *testing.T) {
	for _, c := range []struct {
		name        string
		nft, legacy []string
		command     kind
		want        kind
	}{
		{"nothing anywhere", nil, []string{"INPUT", "FORWARD"}, kindIptablesLegacy, kindIptablesLegacy},
		{"only ours", []string{"FLANNEL-FWD", "FORWARD"}, nil, kindIptablesLegacy, kindIptablesLegacy},
		{"kubelet's hint", []string{"KUBE-IPTABLES-HINT"}, []string{"A", "B", "C"}, kindIptablesLegacy,
			kindIptablesNFT},
		{"kubelet's canary", []string{"A", "B"}, []string{"KUBE-KUBELET-CANARY"}, kindIptablesNFT,
			kindIptablesLegacy},
		{"others in legacy", []string{"A"}, []string{"DOCKER", "DOCKER-USER"}, kindIptablesNFT, kindIptablesLegacy},
		{"others in nft", []string{"DOCKER", "DOCKER-USER"}, nil, kindIptablesLegacy, kindIptablesNFT},
	} {
		if got, why := preferFlavour(c.nft, c.legacy, c.command); got != c.want || why == "" {
			t.Errorf("%s: %v because %q, want %v", c.name, got, why, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]version{
		"iptables v1.8.9 (nf_tables)":  {kindIptablesNFT, [3]int{1, 8, 9}},
		"ip6tables v1.8.10 (legacy)\n": {kindIptablesLegacy, [3]int{1, 8, 10}},
		"iptables v1.6.1":              {kindIptablesLegacy, [3]int{1, 6, 1}},
		"iptables v1.4":                {kindIptablesLegacy, [3]int{1, 4, 0}},
		"nonsense":                     {kindIptablesLegacy, [3]int{}},
	} {
		got := parseVersion(text)
		if got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
		if new := want.number[1] == 8; got.options() != new {
			t.Errorf("%q is at least 1.6.2: %t", text, !new)
		}
	}
}

// Which rules there are follows from config, guard and lease.
func TestDesired(t *testing.T) {
	c := Config{Network: dualStack(false), Masquerade: true, Forward: true}
	set := testSet("192.0.2.1", "192.0.2.1", "2001:db8::1", "0.0.0.0")
	set.Peers[0].Weft = &lease.Weft{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9"),
		netip.MustParseAddr("2001:db8::9")}}
	four := set
	four.Own.V6 = netip.Prefix{}
	for _, x := range []struct {
		name           string
		set            lease.Set
		g              Guard
		inside         bool
		input4, onward int // rules
		input6         int
		port6          uint16
	}{
		{"no port", set, Guard{}, true, 0, 0, 0, 0},
		{"the underlay is not known", set, Guard{Port: 8285}, false, 1, 1, 1, 8285},
		{"a port of weft's", set, Guard{Port: 8285}, true, 2, 2, 2, 8285},
		{"a port of the kernel's", set, Guard{Port: 8472, Peers: true}, true, 3, 2, 3, 8472},
		{"two ports", set, Guard{Port: 51820, Port6: 51821}, true, 2, 2, 2, 51821},
		{"a protocol", set, Guard{Protocol: 4, Peers: true}, true, 3, 2, 3, 0},
		{"no lease in one family", four, Guard{Port: 8285}, true, 2, 2, 0, 0},
	} {
		v4, v6 := desired(c, x.set, x.g, x.inside)
		if len(v4.input) != x.input4 || len(v4.onward) != x.onward || len(v6.input) != x.input6 ||
			len(v4.masquerade) != 6 {
			t.Errorf("%s: %+v %+v", x.name, v4, v6)
		}
		for _, r := range slices.Concat(v6.input, v6.onward) {
			if r.port != x.port6 || !r.ipv6 || r.do != verdictDrop || r.protocol != x.g.Protocol {
				t.Errorf("%s: %+v", x.name, r)
			}
		}
		if x.g.guards() && fmt.Sprint(v4.peers) != "[192.0.2.1 192.0.2.9]" {
			t.Errorf("%s: peers %v", x.name, v4.peers)
		}
	}
}

func testSeal() *Seal {
	return &Seal{
		Devices: []string{"flannel-wg", "flannel-wg-v6"}, Underlay: "eth0",
		Plain:    []netip.Prefix{netip.MustParsePrefix("10.42.8.0/24"), netip.MustParsePrefix("fd42:0:0:8::/64")},
		Hosts:    []netip.Addr{netip.MustParseAddr("192.0.2.8"), netip.MustParseAddr("2001:db8::8")},
		Admitted: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
	}
}

// TestSeal has the rules word by word. What comes by the underlay and from no such peer is dropped before
// anything is let in.
func TestSeal(t *testing.T) {
	v4, v6 := desired(Config{Network: dualStack(false), seal: testSeal()}, testSet(), Guard{}, false)
	const want4 = `-j RETURN in flannel-wg
-j RETURN in flannel-wg-v6
-j RETURN in lo
-s 10.42.8.0/24 -j RETURN in eth0
-s 10.42.0.0/16 -j DROP in eth0
-s 192.0.2.8/32 -d 10.42.0.0/16 -j RETURN in eth0
-s 198.51.100.0/24 -d 10.42.0.0/16 -j RETURN in eth0
-d 10.42.0.0/16 -j DROP in eth0
-s 10.42.7.0/24 -j RETURN
-s 10.42.0.0/16 -j DROP
-j RETURN out flannel-wg
-j RETURN out flannel-wg-v6
-j RETURN out lo
-d 10.42.8.0/24 -j RETURN out eth0
-d 10.42.0.0/16 -j DROP out eth0
-d 10.42.7.0/24 -j RETURN
-d 10.42.0.0/16 -j DROP
`
	if got := lines(v4.sealedIn) + lines(v4.sealedOut); got != want4 {
		t.Errorf("got\n%s\nwant\n%s", got, want4)
	}
	want6 := strings.NewReplacer("-s 198.51.100.0/24 -d 10.42.0.0/16 -j RETURN in eth0\n", "", "10.42.8.0/24",
		"fd42:0:0:8::/64",
		"10.42.0.0/16", "fd42::/48", "10.42.7.0/24", "fd42:0:0:7::/64", "192.0.2.8/32",
		"2001:db8::8/128").Replace(want4)
	if got := lines(v6.sealedIn) + lines(v6.sealedOut); got != want6 {
		t.Errorf("got\n%s\nwant\n%s", got, want6)
	}
	v4, _ = desired(Config{Network: dualStack(false), seal: &Seal{Devices: []string{"flannel-wg"}}}, testSet(),
		Guard{}, false)
	if got := lines(v4.sealedIn); strings.Contains(got, "eth0") ||
		!strings.HasSuffix(got, "-s 10.42.0.0/16 -j DROP\n") {
		t.Errorf("with the underlay in another namespace:\n%s", got)
	}
}

// Names of chains and sets tell the networks apart.
func TestLabels(t *testing.T) {
	for _, p := range []string{"10.42.0.0/16", "fd42::/48", "0.0.0.0/0"} {
		n := netip.MustParsePrefix(p)
		for _, stem := range stems() {
			got, ok := labelled(stem + "-" + label(n))
			if !ok || got != n {
				t.Errorf("%s of %s: %v %t", stem, p, got, ok)
			}
		}
	}
	for _, name := range []string{"theirs", "overlay-input", "overlay-input-", "overlay-input-x",
		"theirs-10.0.0.0/8"} {
		if _, ok := labelled(name); ok {
			t.Errorf("%s is ours", name)
		}
	}
}
