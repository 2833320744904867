package hostrules

import (
	"log/slog"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/lease"
	"weft/test/netns"
)

// inNamespace moves the test to a network namespace of its own, where it can have all firewalls.
func inNamespace(t *testing.T) {
	t.Helper()
	netns.Enter(t, "nft:nftables", "iptables-nft:iptables", "iptables-legacy:iptables")
}

// sh runs one command in the namespace, with its words split at blanks.
func sh(t *testing.T, line string) string {
	t.Helper()
	w := strings.Fields(line)
	return netns.Command(t, w[0], w[1:]...)
}

func try(line string) (string, error) {
	w := strings.Fields(line)
	return netns.Try(w[0], w[1:]...)
}

// flavour is a firewall that can hold masquerade and forward.
type flavour struct {
	name string
	kind kind
}

func flavours() []flavour {
	return []flavour{{"nftables", kindNFTables}, {"iptables-nft", kindIptablesNFT},
		{"iptables-legacy", kindIptablesLegacy}}
}

// ruleset is everything that the host has, without counters and without tables and policies of iptables that
// are empty.
func ruleset(t *testing.T) string {
	t.Helper()
	text, err := tryRuleset()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func tryRuleset() (string, error) {
	all := ""
	for _, cmd := range []string{"nft list ruleset", "iptables-nft-save", "ip6tables-nft-save",
		"iptables-legacy-save", "ip6tables-legacy-save"} {
		out, err := try(cmd)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "#") {
				all += line
			}
		}
	}
	all = regexp.MustCompile(`\[\d+:\d+\]`).ReplaceAllString(all, "[0:0]")
	all = regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(all, "packets 0 bytes 0")
	// nft prints the target of an iptables rule for that family only whose table it prints first; iptables-save
	// prints all.
	return regexp.MustCompile(`(?m)(  counter packets 0 bytes 0 )masquerade.*$`).ReplaceAllString(all, "$1"), nil
}

// sorted is for comparing listings in which tables have changed places.
func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

const (
	overlay4 = "10.42.0.0/16"
	overlay6 = "fd42::/48"
)

func dualStack(nftables bool) lease.NetworkConfig {
	return lease.NetworkConfig{EnableIPv4: true, EnableIPv6: true, EnableNFTables: nftables,
		Network: netip.MustParsePrefix(overlay4), IPv6Network: netip.MustParsePrefix(overlay6)}
}

func testConfig(f flavour) Config {
	return Config{
		Network: dualStack(f.kind == kindNFTables), Masquerade: true, RandomFully: true, Forward: true,
		RouteProtocol: 119,
		NoMasquerade: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"),
			netip.MustParsePrefix("2001:db8::/32")},
		Guard:  Guard{Port: 8472, Peers: true, Underlay: "eth0"},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func testSet(peers ...string) lease.Set {
	s := lease.Set{Own: lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24"),
		V6: netip.MustParsePrefix("fd42:0:0:7::/64")}}}
	for _, p := range peers {
		a := netip.MustParseAddr(p)
		r := lease.Record{Attrs: lease.Attrs{PublicIP: a}}
		if a.Is6() {
			r.Attrs = lease.Attrs{PublicIPv6: a}
		}
		s.Peers = append(s.Peers, r)
	}
	return s
}

// testRules makes Rules that use the given flavour of iptables, whatever the machine prefers.
func testRules(t *testing.T, f flavour, c Config) *Rules {
	t.Helper()
	r := New(c)
	if f.kind != kindNFTables {
		r.flavour = f.kind
	}
	return r
}

func apply(t *testing.T, r *Rules, s lease.Set) {
	t.Helper()
	if err := r.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
