package hostrules

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"weft/lease"
)

// A firewall is asked about the first datagram from a peer, and about a pod's first packet from elsewhere. What is
// certain to be dropped is named, what is accepted or cannot be told is not.
func TestBarriers(t *testing.T) {
	a := netip.MustParseAddr
	input := Packet{Hook: HookInput, In: "eth0", Src: a("192.0.2.2"), Dst: a("192.0.2.1"), Protocol: 17, SrcPort: 8285, DstPort: 8285}
	input6 := Packet{Hook: HookInput, In: "eth0", Src: a("2001:db8::2"), Dst: a("2001:db8::1"), Protocol: 17, SrcPort: 8285, DstPort: 8285}
	forward := Packet{Hook: HookForward, In: "flannel0", Out: "cni0", Src: a("10.42.2.2"), Dst: a("10.42.1.2"), Protocol: 6, SrcPort: 40000, DstPort: 80}
	answer := input
	answer.Answer = true
	output := Packet{Hook: HookOutput, Out: "eth0", Src: a("192.0.2.1"), Dst: a("192.0.2.2"), Protocol: 17, SrcPort: 8285, DstPort: 8285}
	ipip := Packet{Hook: HookInput, In: "eth0", Src: a("192.0.2.2"), Dst: a("192.0.2.1"), Protocol: 4}
	const chain = "nft add table inet t && nft add chain inet t in { type filter hook input priority 0 ; policy drop ; } && "
	const drops = "chain in of table t (nftables)"
	// A line of iptables is run with each of its flavours.
	for _, tt := range []struct {
		name, rules string
		packet      Packet
		want        string
	}{
		{"nothing", "", input, ""},
		{"policy", chain, input, drops + " no rule accepts"},
		{"policy, IPv6", chain, input6, drops + " no rule accepts"},
		{"of another hook", chain, forward, ""},
		{"the port", chain + "nft add rule inet t in udp dport 8285 accept", input, ""},
		{"another port", chain + "nft add rule inet t in udp dport 8472 accept", input, drops + " no rule accepts"},
		{"a set of ports", chain + "nft add rule inet t in udp dport { 53, 8285 } accept", input, ""},
		{"a set of other ports", chain + "nft add rule inet t in udp dport { 53, 67 } accept", input, drops + " no rule accepts"},
		{"ranges", chain + "nft add rule inet t in udp dport { 53, 8000-9000 } accept", input, ""},
		{"other ranges", chain + "nft add rule inet t in udp dport { 53, 9000-9999 } accept", input, drops + " no rule accepts"},
		{"a range", chain + "nft add rule inet t in udp dport 8000-9000 accept", input, ""},
		{"answers only", chain + "nft add rule inet t in ct state established,related accept && nft add rule inet t in iif lo accept", input, drops + " no rule accepts"},
		{"a map of states", chain + "nft add rule inet t in ct state vmap { established : accept, invalid : drop }", input, drops + " no rule accepts"},
		{"a map to a chain", chain + "nft add chain inet t eth && nft add rule inet t eth ip saddr 192.0.2.0/24 accept && nft add rule inet t in iifname vmap { eth0 : jump eth }", input, ""},
		{"a source", chain + "nft add rule inet t in ip saddr 192.0.2.0/24 udp dport 8285 accept", input, ""},
		{"another source", chain + "nft add rule inet t in ip saddr 198.51.100.0/24 udp dport 8285 accept", input, drops + " no rule accepts"},
		{"a set of sources", chain + "nft add set inet t peers { type ipv4_addr ; elements = { 192.0.2.2 } ; } && nft add rule inet t in ip saddr @peers accept", input, ""},
		{"a link", chain + "nft add rule inet t in iifname eth0 accept", input, ""},
		{"a link by number", chain + "nft add rule inet t in iif eth0 accept", input, ""},
		{"a link by its beginning", chain + "nft add rule inet t in iifname eth* accept", input, ""},
		{"a rate may", chain + "nft add rule inet t in limit rate 1000/second accept", input, ""},
		{"a rule that drops", strings.Replace(chain, "policy drop", "policy accept", 1) + "nft add rule inet t in udp dport 8285 drop", input, drops + " a rule drops"},
		{"a rule that rejects", strings.Replace(chain, "policy drop", "policy accept", 1) + "nft add rule inet t in meta l4proto udp reject", input, drops + " a rule drops"},
		{"a rule that may drop", strings.Replace(chain, "policy drop", "policy accept", 1) + "nft add rule inet t in limit rate over 1000/second drop", input, ""},
		{"a return", chain + "nft add chain inet t u && nft add rule inet t u udp dport 53 return && nft add rule inet t u udp dport 8285 accept && nft add rule inet t in jump u", input, ""},
		{"of firewalld", "nft add table inet firewalld && nft add chain inet firewalld filter_INPUT { type filter hook input priority 10 ; policy accept ; } && nft add rule inet firewalld filter_INPUT reject with icmpx admin-prohibited", input, "chain filter_INPUT of table firewalld (nftables) a rule drops"},

		{"ipip: policy", chain, ipip, drops + " no rule accepts"},
		{"ipip: the protocol", chain + "nft add rule inet t in meta l4proto 4 accept", ipip, ""},
		{"ipip: the protocol in the header", chain + "nft add rule inet t in ip protocol 4 accept", ipip, ""},
		{"ipip: ports are none of it", chain + "nft add rule inet t in udp dport 1-65535 accept && nft add rule inet t in tcp dport 1-65535 accept", ipip, drops + " no rule accepts"},
		{"ipip: of firewalld", "nft add table inet firewalld && nft add chain inet firewalld filter_INPUT { type filter hook input priority 10 ; policy accept ; } && nft add rule inet firewalld filter_INPUT reject with icmpx admin-prohibited", ipip, "chain filter_INPUT of table firewalld (nftables) a rule drops"},
		{"iptables: ipip, ports are none of it", "iptables -P INPUT DROP && iptables -A INPUT -p udp --dport 1:65535 -j ACCEPT && iptables -A INPUT -p tcp --dport 1:65535 -j ACCEPT", ipip, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: ipip, the protocol", "iptables -P INPUT DROP && iptables -A INPUT -p 4 -j ACCEPT", ipip, ""},
		{"iptables: ipip, a rule", "iptables -A INPUT -p 4 -j DROP", ipip, "chain INPUT of table filter (iptables, ? flavour) a rule drops"},

		{"iptables: policy", "iptables -P INPUT DROP", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: the port", "iptables -P INPUT DROP && iptables -A INPUT -p udp --dport 8285 -j ACCEPT", input, ""},
		{"iptables: another port", "iptables -P INPUT DROP && iptables -A INPUT -p udp --dport 8472 -j ACCEPT", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: ports", "iptables -P INPUT DROP && iptables -A INPUT -p udp -m multiport --dports 53,8000:9000 -j ACCEPT", input, ""},
		{"iptables: other ports", "iptables -P INPUT DROP && iptables -A INPUT -p udp -m multiport --dports 53,9000:9999 -j ACCEPT", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: answers", "iptables -P INPUT DROP && iptables -A INPUT -i lo -j ACCEPT && iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT && iptables -A INPUT -p tcp --dport 22 -j ACCEPT", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: a source and a comment", "iptables -P INPUT DROP && iptables -A INPUT -s 192.0.2.0/24 -m comment --comment peers -j ACCEPT", input, ""},
		{"iptables: a chain that rejects", "iptables -N REST && iptables -A REST -j REJECT && iptables -A INPUT ! -i lo -j REST", input, "chain REST of table filter (iptables, ? flavour) a rule drops"},
		{"iptables: a goto", "iptables -N REST && iptables -A REST -p tcp -j RETURN && iptables -P INPUT DROP && iptables -A INPUT -g REST && iptables -A INPUT -j ACCEPT", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"answers only, and it is one", chain + "nft add rule inet t in ct state established,related accept", answer, ""},
		{"iptables: answers, and it is one", "iptables -P INPUT DROP && iptables -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", answer, ""},
		{"iptables: new ones only, and it is an answer", "iptables -P INPUT DROP && iptables -A INPUT -m conntrack --ctstate NEW -j ACCEPT", answer, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: what leaves", "iptables -A OUTPUT -d 192.0.2.2 -p udp --dport 8285 -j DROP", output, "chain OUTPUT of table filter (iptables, ? flavour) a rule drops"},
		{"nftables: what leaves", "nft add table inet t && nft add chain inet t in { type filter hook output priority 0 ; } && nft add rule inet t in oifname eth0 udp dport 8285 reject", output, drops + " a rule drops"},
		{"iptables: forward", "iptables -P FORWARD DROP", forward, "chain FORWARD of table filter (iptables, ? flavour) no rule accepts"},
		{"iptables: forward to pods", "iptables -P FORWARD DROP && iptables -A FORWARD -d 10.42.0.0/16 -j ACCEPT", forward, ""},
		{"iptables: forward by the link", "iptables -P FORWARD DROP && iptables -A FORWARD -i flannel+ -j ACCEPT", forward, ""},
		{"iptables: ufw", "iptables -N ufw-user-input && iptables -P INPUT DROP && iptables -A INPUT -j ufw-user-input", input, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
		{"ip6tables", "ip6tables -P INPUT DROP && ip6tables -A INPUT -s 2001:db8::/32 -p udp --dport 8285 -j ACCEPT", input6, ""},
		{"ip6tables drops", "ip6tables -P INPUT DROP && ip6tables -A INPUT -s 2001:db8:1::/48 -p udp --dport 8285 -j ACCEPT", input6, "chain INPUT of table filter (iptables, ? flavour) no rule accepts"},
	} {
		flavours := []string{""}
		if strings.Contains(tt.rules, "tables ") {
			flavours = []string{"nft", "legacy"}
		}
		for _, flavour := range flavours {
			t.Run(strings.TrimSuffix(tt.name+", "+flavour, ", "), func(t *testing.T) {
				inNamespace(t)
				sh(t, "ip link add eth0 type veth peer name far0")
				sh(t, "ip link add flannel0 type veth peer name far1")
				sh(t, "ip link set eth0 up")
				for line := range strings.SplitSeq(strings.NewReplacer("iptables -", "iptables-"+flavour+" -", "ip6tables -", "ip6tables-"+flavour+" -").Replace(tt.rules), " && ") {
					if line = strings.TrimSpace(line); line != "" {
						sh(t, line)
					}
				}
				got, err := Barriers(tt.packet)
				if err != nil {
					t.Fatal(err)
				}
				want := strings.ReplaceAll(tt.want, "?", flavour)
				if text := fmt.Sprint(got); text != "["+strings.Replace(want, "chain ", "in chain ", 1)+"]" {
					t.Errorf("got %v, want %q", got, want)
				}
				for _, b := range got {
					if allow := b.Allow(tt.packet); allow == "" || strings.Contains(tt.name, "firewalld") != strings.Contains(allow, "firewall-cmd") || strings.Contains(tt.name, "ufw") != strings.Contains(allow, "ufw allow") {
						t.Errorf("allowed by %q", allow)
					} else if tt.packet == ipip && (strings.Contains(allow, "udp") || !strings.Contains(allow, "4")) {
						t.Errorf("ipip is allowed by %q", allow)
					} else if command, ok := strings.CutPrefix(allow, "iptables"); ok && tt.packet == ipip {
						sh(t, "iptables-"+flavour+strings.TrimPrefix(command, "-legacy"))
						if still, err := Barriers(tt.packet); err != nil || len(still) > 0 {
							t.Errorf("%s: %v, %v", allow, still, err)
						}
					}
				}
			})
		}
	}
}

// A packet's bytes are as hostile as any: a blob of a legacy table whose matches lie about their sizes says nothing.
func TestLegacyMatchesThatLie(t *testing.T) {
	l := layoutOf(false)
	b := make([]byte, l.size+targetHeader+targetHeader)
	b[l.target], b[l.next] = byte(l.size+targetHeader), byte(len(b))
	p := Packet{Hook: HookInput, Src: netip.MustParseAddr("192.0.2.2"), Dst: netip.MustParseAddr("192.0.2.1"), Protocol: 17}
	for _, size := range []byte{0, 1, targetHeader - 1, targetHeader + 1, 255} {
		b[l.size] = size
		if got := legacyMatch(b, p); got != maybe {
			t.Errorf("size %d: %v", size, got)
		}
	}
	for _, name := range []string{"udp", "tcp", "state", "conntrack", "multiport", "mark"} {
		for n := range 60 {
			_ = xtMatch(name, 1, make([]byte, n), p) // it does not panic
			_ = xtMatch(name, 3, make([]byte, n), p)
		}
	}
}

// The operator is told which chain keeps peers' datagrams from coming in, and what would let them, as soon as it does.
func TestInputIsNoted(t *testing.T) {
	inNamespace(t)
	a := netip.MustParseAddr
	g := Guard{Port: 8285, Underlay: "eth0", Local4: a("192.0.2.1")}
	set := lease.Set{Peers: []lease.Record{{Attrs: lease.Attrs{PublicIP: a("192.0.2.2")}}, {Attrs: lease.Attrs{PublicIP: a("192.0.2.3")}}}}
	var kept barrierNotes
	notes := func(g Guard) []string {
		kept.took = 0 // else it is not asked again so soon
		return kept.notes(Config{}, g, set)
	}
	if got := notes(g); len(got) > 0 {
		t.Errorf("without rules: %q", got)
	}
	sh(t, "iptables-nft -P INPUT DROP")
	got := notes(g)
	if len(got) != 1 || !strings.Contains(got[0], "UDP port 8285, as from 192.0.2.2, do not come in: in chain INPUT of table filter (iptables, nft flavour) no rule accepts them; iptables -I INPUT -p udp --dport 8285 -j ACCEPT") {
		t.Errorf("%q", got)
	}
	raw := g
	raw.Local4 = netip.Addr{} // path raw takes them before
	if got := notes(raw); len(got) > 0 {
		t.Errorf("on path raw: %q", got)
	}
	sh(t, "iptables-nft -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	if got := notes(g); len(got) != 1 || !strings.Contains(got[0], "do not come in unless they answer this node's own: in chain INPUT") {
		t.Errorf("answers are let in: %q", got)
	}
	sh(t, "iptables-nft -A INPUT -s 192.0.2.2 -j ACCEPT")
	if got := notes(g); len(got) != 1 || !strings.Contains(got[0], "as from 192.0.2.3") {
		t.Errorf("one peer is let in: %q", got)
	}
	sh(t, "iptables-nft -I INPUT -p udp --dport 8285 -j ACCEPT")
	if got := notes(g); len(got) > 0 {
		t.Errorf("let in: %q", got)
	}
	ipip := Guard{Protocol: 4, Underlay: "eth0", Local4: a("192.0.2.1"), Local6: a("2001:db8::1")}
	if got := notes(ipip); len(got) != 1 || !strings.Contains(got[0], "packets from peers to IP protocol 4, as from 192.0.2.3, do not come in unless they answer this node's own: in chain INPUT") || !strings.HasSuffix(got[0], "; iptables -I INPUT -p 4 -j ACCEPT") {
		t.Errorf("ipip: %q", got)
	}
	sh(t, "iptables-nft -I INPUT -p 4 -j ACCEPT")
	if got := notes(ipip); len(got) > 0 {
		t.Errorf("ipip is let in: %q", got)
	}
	g.Port6, g.Local6, set.Peers[0].PublicIPv6 = 8286, a("2001:db8::1"), a("2001:db8::2")
	sh(t, "ip6tables-nft -P INPUT DROP")
	sh(t, "ip6tables-nft -A INPUT -p udp --dport 8285 -j ACCEPT")
	if got := notes(g); len(got) != 1 || !strings.Contains(got[0], "ip6tables -I INPUT -p udp --dport 8286 -j ACCEPT") {
		t.Errorf("another port over IPv6: %q", got)
	}
}

// A program decides about what is queued for it, so that nothing is certain: not every kernel has such rules to try it with.
func TestAQueueIsNoCertainDrop(t *testing.T) {
	r := ruling{match: yes}
	(&nftTable{}).evaluate("queue", nil, &registers{}, &r)
	if r.does != doesAccept {
		t.Errorf("%+v", r)
	}
}
