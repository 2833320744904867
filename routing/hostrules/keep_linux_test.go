package hostrules

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// withMarks lists everything that the host has in a flavour with counters, and with handles where the flavour has them.
func withMarks(t *testing.T, f flavour) string {
	t.Helper()
	lists := []string{"nft -a list ruleset"}
	if f.kind == kindIptablesLegacy {
		lists = []string{"iptables-legacy-save -c", "ip6tables-legacy-save -c"}
	}
	var all string
	for _, cmd := range lists {
		all += sh(t, cmd)
	}
	return withoutPolicies(all)
}

// withoutPolicies leaves out what iptables-save says of itself, and the counters of policies, which count every packet.
func withoutPolicies(listing string) string {
	var w strings.Builder
	for line := range strings.Lines(listing) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ":") {
			w.WriteString(line)
		}
	}
	return w.String()
}

// strangers has n datagrams come in from an address that is no peer's, and pods as many from one of a pod: the rules drop and count them.
func strangers(t *testing.T, n int) {
	t.Helper()
	for _, from := range []string{"127.0.0.1", "10.42.9.9"} {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8472})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			_, _ = c.Write([]byte("x")) // dropped
		}
		_ = c.Close()
	}
}

// manyPeers are more than one chain of iptables has.
func manyPeers() (many []string) {
	for i := range 3 * peersInChain {
		many = append(many, fmt.Sprintf("198.51.%d.%d", i%5, i+1), fmt.Sprintf("2001:db8:5::%x", i+1))
	}
	return many
}

// An own process finds the rules of the one before it, and leaves them as they are: handles, counters and the kernel's count of
// transactions are the same.
func TestRulesOutliveTheProcess(t *testing.T) {
	few := []string{"198.51.100.2", "198.51.100.1", "2001:db8:5::1"}
	for _, v := range []struct {
		name  string
		peers []string
		set   func(*Config)
	}{
		{"everything", few, func(*Config) {}},
		{"many peers", manyPeers(), func(*Config) {}},
		{"no peer", nil, func(*Config) {}},
		{"fixed source ports", few, func(c *Config) { c.RandomFully = false }},
		{"only masquerading", few, func(c *Config) { c.Forward, c.Guard, c.NoMasquerade = false, Guard{}, nil }},
		{"a carried type", few, func(c *Config) { c.Guard.Peers = false }},
		{"a protocol without ports", few, func(c *Config) { c.Guard = Guard{Protocol: 4, Peers: true, Underlay: "eth0"} }},
		{"no underlay", few, func(c *Config) { c.Guard.Underlay = "" }},
		{"an odd link", few, func(c *Config) { c.Guard.Underlay = "bond0.4094@x:1-" }},
		{"whole addresses", few, func(c *Config) {
			c.NoMasquerade = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("::/0")}
		}},
	} {
		for _, f := range flavours() {
			t.Run(v.name+", "+f.name, func(t *testing.T) {
				inNamespace(t)
				sh(t, "ip address add 10.42.9.9/32 dev lo")
				c := testConfig(f)
				v.set(&c)
				apply(t, testRules(t, f, c), testSet(v.peers...))
				strangers(t, 3)
				before, generation := withMarks(t, f), Changes()
				again := testRules(t, f, c)
				wrote := counted(again)
				apply(t, again, testSet(v.peers...))
				apply(t, again, testSet(v.peers...))
				if now := withMarks(t, f); now != before || Changes() != generation || *wrote != 0 {
					t.Errorf("another process has written %d times, %d transactions: %s", *wrote, Changes()-generation, changed(before, now))
				}
				if st := again.Status(); !st.InPlace || st.Repaired != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// changed lists the lines that are in one listing and not in the other.
func changed(before, now string) string {
	var w strings.Builder
	for _, x := range []struct{ sign, a, b string }{{"-", before, now}, {"+", now, before}} {
		for line := range strings.Lines(x.a) {
			if !strings.Contains(x.b, line) {
				w.WriteString("\n" + x.sign + strings.TrimRight(line, "\n"))
			}
		}
	}
	return w.String()
}

// counted counts the transactions of r.
func counted(r *Rules) *int {
	n := new(int)
	for _, s := range r.sides {
		s.firewall = counting{s.firewall, n}
	}
	return n
}

// counting is a firewall whose transactions are counted.
type counting struct {
	firewall
	n *int
}

func (c counting) apply(ctx context.Context, want familyRules) (int, error) {
	wrote, err := c.firewall.apply(ctx, want)
	*c.n += wrote
	return wrote, err
}
