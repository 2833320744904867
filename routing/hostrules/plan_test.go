package hostrules

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"weft/lease"
)

func TestRestorePayload(t *testing.T) {
	want := table{chains: []chain{{chainForward, []string{"-s 10.42.0.0/16 -j ACCEPT"}}}, jumps: []jump{{"FORWARD", "-j FLANNEL-FWD"}}}
	const empty = "*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
	const there = "*filter\n:FORWARD DROP [5:500]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j THEIRS\n-A FORWARD -j FLANNEL-FWD\n-A FLANNEL-FWD -s 10.42.0.0/16 -j ACCEPT\nCOMMIT\n"
	for _, c := range []struct {
		name, have string
		want       table
		payload    string
	}{
		{"nothing there", empty, want,
			"*filter\n:FLANNEL-FWD - [0:0]\n-A FLANNEL-FWD -s 10.42.0.0/16 -j ACCEPT\n-A FORWARD -j FLANNEL-FWD\nCOMMIT\n"},
		{"all there", there, want, ""},
		{"nothing there and nothing wanted", empty, table{}, ""},
		{"no longer wanted", there, table{},
			"*filter\n-D FORWARD -j FLANNEL-FWD\n-F FLANNEL-FWD\n-X FLANNEL-FWD\nCOMMIT\n"},
		{"another's rule in our chain", strings.Replace(there, "-A FLANNEL-FWD", "-A FLANNEL-FWD -j DROP\n-A FLANNEL-FWD", 1), want,
			"*filter\n:FLANNEL-FWD - [0:0]\n-A FLANNEL-FWD -s 10.42.0.0/16 -j ACCEPT\nCOMMIT\n"},
		{"a rule twice, and one of flannel's", strings.Replace(there, "COMMIT", "-A FORWARD -j FLANNEL-FWD\n-A FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD\nCOMMIT", 1), want,
			"*filter\n-D FORWARD -j FLANNEL-FWD\n-D FORWARD -m comment --comment \"flanneld forward\" -j FLANNEL-FWD\nCOMMIT\n"},
		{"a rule that only mentions us", "*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m comment --comment \"before -j FLANNEL-FWD\" -j ACCEPT\nCOMMIT\n", table{}, ""},
		{"another table", "*nat\n:FLANNEL-FWD - [0:0]\nCOMMIT\n", table{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := restorePayload("filter", parseSave(c.have, "filter"), c.want); got != c.payload {
				t.Errorf("got\n%s\nwant\n%s", got, c.payload)
			}
		})
	}
}

func TestTarget(t *testing.T) {
	for rule, want := range map[string]string{
		"-j FLANNEL-FWD":                                           "FLANNEL-FWD",
		"-s 10.0.0.0/8 -g WEFT-PEERS-3":                            "WEFT-PEERS-3",
		`-m comment --comment "x -j Y" -j ACCEPT`:                  "ACCEPT",
		`-m comment --comment "a \" -j Y" -j ACCEPT`:               "ACCEPT",
		`-m comment --comment "one" -m comment --comment two -j Z`: "Z",
		"-p udp": "",
		"-j":     "",
		"":       "",
	} {
		if got := target(rule); got != want {
			t.Errorf("%s: %q, want %q", rule, got, want)
		}
	}
}

// After the payload is restored the table is as wanted, whatever iptables-save printed before.
func FuzzRestorePayload(f *testing.F) {
	f.Add("*filter\n:FORWARD ACCEPT [0:0]\n:FLANNEL-FWD - [0:0]\n-A FORWARD -j FLANNEL-FWD\nCOMMIT\n")
	f.Add("*filter\n:WEFT-X - [0:0]\n-A WEFT-X\n-A\n:\n*\n")
	f.Fuzz(func(t *testing.T, text string) {
		have := parseSave(text, "filter")
		want := iptablesRules(familyRules{forward: []rule{{src: netip.MustParsePrefix("10.0.0.0/8"), do: verdictAccept, comment: commentForward}}})["filter"]
		payload := restorePayload("filter", have, want)
		for line := range strings.Lines(payload) {
			w := strings.Fields(line)
			if len(w) < 2 { // the table, COMMIT
				continue
			}
			name := strings.TrimPrefix(w[0], ":")
			switch w[0] {
			case "-F", "-X":
				name = w[1]
			case "-A", "-D":
				name = w[1]
				if ownsChain("filter", target(strings.Join(w[2:], " "))) {
					continue
				}
			}
			if !ownsChain("filter", name) {
				t.Errorf("%q is not about us", line)
			}
		}
	})
}

// passes walks a packet from src through the chains as the kernel does, and reports whether it returns to the caller.
func passes(t *testing.T, chains []chain, src netip.Addr) (bool, int) {
	t.Helper()
	byName := map[string][]string{}
	for _, c := range chains {
		byName[c.name] = c.rules
	}
	at, steps := chainPeers, 0
	for at != chainStrangers {
		next := ""
		for _, r := range byName[at] {
			steps++
			w := strings.Fields(r)
			if w[0] == "-s" {
				if !netip.MustParsePrefix(w[1]).Contains(src) {
					continue
				}
				w = w[2:]
			}
			if w[0] == "-j" && w[1] == "RETURN" {
				return true, steps
			}
			next = w[1]
			break
		}
		if next == "" {
			t.Fatalf("chain %s ends without a verdict for %v", at, src)
		}
		at = next
	}
	return false, steps
}

func TestPeerChains(t *testing.T) {
	var many4, many6 []netip.Addr
	for i := range 5000 {
		many4 = append(many4, netip.AddrFrom4([4]byte{10, byte(i >> 4), byte(i), byte(i * 7)}))
		many6 = append(many6, netip.AddrFrom16([16]byte{0x20, 1, 15: byte(i), 9: byte(i >> 8)}))
	}
	nested := []netip.Addr{} // each beside half of what is left
	for i := range 128 {
		b := [16]byte{}
		b[i/8] = 0x80 >> (i % 8)
		nested = append(nested, netip.AddrFrom16(b))
	}
	for name, peers := range map[string][]netip.Addr{"none": nil, "one": many4[:1], "32": many4[:32], "33": many4[:33], "5000 of IPv4": many4,
		"5000 of IPv6": many6, "nested": nested} {
		slices.SortFunc(peers, netip.Addr.Compare)
		peers = slices.Compact(peers)
		chains := peerChains(peers)
		names := map[string]bool{}
		for _, c := range chains {
			if names[c.name] || len(c.name) > 28 || len(c.rules) > peersInChain+1 {
				t.Errorf("%s: chain %s is there twice, has too long a name, or %d rules", name, c.name, len(c.rules))
			}
			names[c.name] = true
		}
		most := 0
		for _, p := range peers {
			in, steps := passes(t, chains, p)
			most = max(most, steps)
			if !in {
				t.Errorf("%s: %v does not pass", name, p)
			}
			if out, _ := passes(t, chains, p.Next()); out && !slices.Contains(peers, p.Next()) {
				t.Errorf("%s: %v passes", name, p.Next())
			}
		}
		if most > 400 {
			t.Errorf("%s: %d rules on the longest way", name, most)
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
		{"only what is ours", []string{"FLANNEL-FWD", "WEFT-INPUT", "FORWARD"}, nil, kindIptablesLegacy, kindIptablesLegacy},
		{"kubelet's hint", []string{"KUBE-IPTABLES-HINT"}, []string{"A", "B", "C"}, kindIptablesLegacy, kindIptablesNFT},
		{"kubelet's canary", []string{"A", "B"}, []string{"KUBE-KUBELET-CANARY"}, kindIptablesNFT, kindIptablesLegacy},
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
		if new := want.number[1] == 8; got.atLeast(1, 6, 2) != new {
			t.Errorf("%q is at least 1.6.2: %t", text, !new)
		}
	}
}

func TestNoMasqueradeKey(t *testing.T) {
	for backend, want := range map[string]string{
		``:                      "[]",
		`{"Type":"udp"}`:        "[]",
		`{"NoMasquerade":[]}`:   "[]",
		`{"nomasquerade":null}`: "[]",
		`{"NoMasquerade":["192.0.2.9/24","2001:db8::/32","10.0.0.0/8","192.0.2.0/24"]}`: "[10.0.0.0/8 192.0.2.0/24 2001:db8::/32]",
		`{"NoMasquerade":"10.0.0.0/8"}`:          "it is no list of strings",
		`{"NoMasquerade":["10.0.0.0","x"]}`:      `"x" is no network`,
		`{"NoMasquerade":["::ffff:1.2.3.4/99"]}`: "is no network",
	} {
		got, err := ParseNoMasquerade(lease.NetworkConfig{Backend: json.RawMessage(backend)})
		text := fmt.Sprint(got)
		if err != nil {
			text = err.Error()
			if !errors.As(err, new(*lease.ConfigError)) {
				t.Errorf("%s: %T", backend, err)
			}
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", backend, text, want)
		}
	}
}

// TestPlan: the firewall in which the rules belong comes first, with one that would drop what it accepts, and what is
// left elsewhere goes last.
func TestPlan(t *testing.T) {
	v4, v6 := desired(Config{Network: dualStack(false), Masquerade: true, Forward: true}, testSet(), Guard{}, nil)
	sides := newSides()
	of := func(ipv6 bool, k kind) int {
		return slices.IndexFunc(sides, func(s *side) bool { return s.ipv6 == ipv6 && s.kind == k })
	}
	views := make([]view, len(sides))
	views[of(false, kindIptablesLegacy)].forwardDrops = true
	views[of(true, kindNFTables)].forwardDrops = true // said by a note: no rule of ours helps
	for _, c := range []struct {
		primary kind
		needed  []planned
	}{
		{kindIptablesNFT, []planned{{of(false, kindIptablesNFT), v4}, {of(false, kindIptablesLegacy), v4.forwardOnly()}, {of(true, kindIptablesNFT), v6}}},
		{kindNFTables, []planned{{of(false, kindNFTables), v4}, {of(false, kindIptablesLegacy), v4.forwardOnly()}, {of(true, kindNFTables), v6}}},
		{kindIptablesLegacy, []planned{{of(false, kindIptablesLegacy), v4}, {of(true, kindIptablesLegacy), v6}}},
	} {
		got := plan(sides, views, c.primary, v4, v6)
		if len(got) != len(sides) || !reflect.DeepEqual(got[:len(c.needed)], c.needed) {
			t.Errorf("%v:\n got %+v\nwant %+v", c.primary, got, c.needed)
		}
		for _, p := range got[len(c.needed):] {
			if !p.want.empty() || p.want.ipv6 != sides[p.side].ipv6 {
				t.Errorf("%v: %+v is no leftover", c.primary, p)
			}
		}
	}
}

// TestGuardOfAProtocol: what is without ports is guarded as a port is, rule by rule.
func TestGuardOfAProtocol(t *testing.T) {
	const ipip = 4
	c, set, outer := Config{Network: dualStack(false)}, testSet("192.0.2.1", "2001:db8::1"), []string{"eth0"}
	port4, port6 := desired(c, set, Guard{Port: 8472, Peers: true, Underlay: "eth0"}, outer)
	protocol4, protocol6 := desired(c, set, Guard{Protocol: ipip, Peers: true, Underlay: "eth0"}, outer)
	for _, f := range []struct{ port, protocol familyRules }{{port4, protocol4}, {port6, protocol6}} {
		for _, l := range [][2][]rule{{f.port.portInput(), f.protocol.portInput()}, {f.port.podsForward, f.protocol.podsForward}} {
			if len(l[0]) != len(l[1]) || len(l[0]) == 0 {
				t.Fatalf("%d rules about a port, %d about a protocol", len(l[0]), len(l[1]))
			}
			for i, r := range l[0] {
				want := strings.Replace(r.iptables(false), "-p udp -m udp --dport 8472", "-p 4", 1)
				if got := l[1][i].iptables(false); got != want || !strings.Contains(got, "-p 4") {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
		}
		if !slices.Equal(f.port.peers, f.protocol.peers) {
			t.Errorf("peers %v", f.protocol.peers)
		}
	}
}

// TestGuardOfTwoPorts: over IPv6 it may be another port, which the rules of that family name, and only those.
func TestGuardOfTwoPorts(t *testing.T) {
	c, set, outer := Config{Network: dualStack(false)}, testSet("192.0.2.1", "2001:db8::1"), []string{"eth0"}
	v4, v6 := desired(c, set, Guard{Port: 51820, Port6: 51821, Underlay: "eth0"}, outer)
	for port, f := range map[uint16]familyRules{51820: v4, 51821: v6} {
		all := slices.Concat(f.portInput(), f.podsForward)
		if len(all) == 0 {
			t.Errorf("no rules for port %d", port)
		}
		for _, r := range all {
			if r.port != port {
				t.Errorf("%s, want port %d", r.iptables(false), port)
			}
		}
	}
}

// Which families and which rules there are follows from config and lease.
func TestDesired(t *testing.T) {
	c := Config{Network: dualStack(false), Masquerade: true, Forward: true}
	set := testSet("192.0.2.1", "192.0.2.1", "2001:db8::1", "0.0.0.0")
	set.Peers[0].Weft = &lease.Weft{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}}
	v4, v6 := desired(c, set, Guard{Port: 8472, Peers: true}, nil)
	if got := fmt.Sprint(v4.peers, v6.peers); got != "[192.0.2.1 192.0.2.9] [2001:db8::1 2001:db8::9]" {
		t.Error(got)
	}
	if v4.ipv6 || !v6.ipv6 || len(v4.masquerade) != 6 || v4.forward == nil || v4.podsInput == nil || v4.podsForward == nil || v4.peersInput == nil {
		t.Errorf("%+v", v4)
	}
	if v4, v6 = desired(c, set, Guard{Port: 8285}, nil); v4.peersInput != nil || v6.podsInput == nil {
		t.Error("the user-space port has a guard against strangers, or none against pods")
	}
	if v4, _ = desired(c, set, Guard{}, nil); v4.podsInput != nil || v4.podsForward != nil {
		t.Error("there are rules about a port, and no port")
	}
	// No sender inside reaches a peer's port or ours, whatever address it sends from.
	for _, g := range []Guard{{Port: 8285}, {Port: 8472, Peers: true}} {
		v4, v6 = desired(c, set, g, []string{"eth0", "lo"})
		for _, f := range []familyRules{v4, v6} {
			input, last := f.portInput(), f.podsForward[len(f.podsForward)-1]
			if len(f.peers) != 2 || len(f.insideInput) != 3 || input[len(input)-1].do != verdictDrop || input[len(input)-1].src.IsValid() ||
				!last.toPeer || last.do != verdictDrop || last.src.IsValid() || input[1].fromStranger != g.Peers {
				t.Errorf("%+v: %+v", g, f)
			}
		}
	}
	// Thousands of peers are not listed only for that: then nobody inside reaches the port of anybody.
	many := set
	many.Peers = make([]lease.Record, mostSpared+1)
	for _, g := range []Guard{{Port: 8285}, {Port: 8472, Peers: true}} {
		v4, _ = desired(c, many, g, []string{"eth0", "lo"})
		if last := v4.podsForward[len(v4.podsForward)-1]; last.toPeer != g.Peers || v4.toPeers() != g.Peers || last.do != verdictDrop {
			t.Errorf("%+v: %+v", g, v4.podsForward)
		}
	}
	if v4, _ = desired(c, set, Guard{}, []string{"eth0"}); v4.insideInput != nil || v4.podsForward != nil {
		t.Error("there are rules about a port, and no port")
	}
	set.Own.V6 = netip.Prefix{}
	if v4, v6 = desired(c, set, Guard{Port: 1}, nil); v4.empty() || !v6.empty() {
		t.Error("the family without a lease has rules, or the other has none")
	}
	c.Network.EnableIPv4 = false
	if v4, _ = desired(c, set, Guard{Port: 1}, nil); !v4.empty() {
		t.Error("a family that is off has rules")
	}
}
