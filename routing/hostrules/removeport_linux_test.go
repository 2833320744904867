package hostrules

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The rules that a flannel would not know can be removed alone: the rules that flannel makes too stay, and so do
// everybody else's.
func TestTheRulesOfThePortAlone(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			for _, line := range f.foreign {
				sh(t, line)
			}
			open := testConfig(f)
			open.Guard = Guard{}
			apply(t, testRules(t, f, open), testSet("198.51.100.1"))
			without := listing(t, f)
			r := testRules(t, f, testConfig(f))
			r.Seal(testSeal())
			apply(t, r, testSet("198.51.100.1", "2001:db8::1"))
			if with := listing(t, f); !ofThePort(with) || !strings.Contains(with, commentSealed) {
				t.Fatalf("no rules about the port, or no seal:\n%s", with)
			}
			planned, err := Remove(t.Context(), RemoveOptions{Port: true, DryRun: true})
			if err != nil || len(planned) == 0 || !ofThePort(listing(t, f)) {
				t.Errorf("a dry run: %q, %v", planned, err)
			}
			lines, err := Remove(t.Context(), RemoveOptions{Port: true, Flannel: true})
			if err != nil || strings.Join(lines, "\n") != strings.Join(planned, "\n") {
				t.Errorf("%q, %v, planned %q", lines, err, planned)
			}
			after := listing(t, f)
			if ofThePort(after) {
				t.Errorf("left:\n%s", after)
			}
			for line := range strings.Lines(without) {
				if !strings.Contains(after, line) {
					t.Errorf("%q is gone", line)
				}
			}
			if again, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || len(again) != 0 {
				t.Errorf("the second time: %q, %v", again, err)
			}
		})
	}
}

// A flannel that takes over in iptables makes chains and rules of its own beside ours. With --rules ours go then, and before that they stay,
// since packets go by them.
func TestAFlannelThatLivesDoesWithoutOurRules(t *testing.T) {
	for _, f := range flavours() {
		kind, ok := strings.CutPrefix(f.name, "iptables-")
		if !ok {
			continue // there flannel makes its chains anew
		}
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			apply(t, testRules(t, f, testConfig(f)), testSet("198.51.100.1", "2001:db8::1"))
			marks := func() int { return strings.Count(listing(t, f), "(weft)") }
			all := marks()
			if _, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || marks() != all || all == 0 {
				t.Errorf("without a flannel: %v, %d of %d rules are left", err, marks(), all)
			}
			flannel := []string{"FORWARD -j FLANNEL-FWD", "FLANNEL-FWD -s 10.42.0.0/16 -j ACCEPT", "POSTROUTING -j FLANNEL-POSTRTG", "FLANNEL-POSTRTG -s 10.42.0.0/16 ! -d 224.0.0.0/4 -j MASQUERADE"}
			for i, rule := range flannel {
				for _, program := range []string{"iptables-", "ip6tables-"} {
					if program == "ip6tables-" {
						rule = strings.NewReplacer("10.42.0.0/16", "fd42::/48", "224.0.0.0/4", "ff00::/8").Replace(rule)
					}
					sh(t, program+kind+" -t "+[]string{"filter", "nat"}[i/2]+" -A "+rule)
				}
			}
			planned, err := Remove(t.Context(), RemoveOptions{Port: true, DryRun: true})
			if err != nil || len(planned) != all {
				t.Errorf("a dry run: %q, %v, want %d", planned, err, all)
			}
			if lines, err := Remove(t.Context(), RemoveOptions{Port: true}); err != nil || len(lines) != all || marks() != 0 {
				t.Errorf("%q, %v, %d are left", lines, err, marks())
			}
			for _, rule := range flannel {
				if text := listing(t, f); !strings.Contains(text, "-A "+rule) {
					t.Errorf("%q went too:\n%s", rule, text)
				}
			}
			if again, err := Remove(t.Context(), RemoveOptions{}); err != nil || len(again) != 0 {
				t.Errorf("something of ours is left: %q, %v", again, err)
			}
		})
	}
}

func ofThePort(listing string) bool {
	return strings.Contains(listing, "WEFT-") || strings.Contains(listing, "sealed-") || strings.Contains(listing, commentSealed) || strings.Contains(listing, "overlay-") || strings.Contains(listing, "overlay port")
}

// TestGuardOfAProtocolInTheKernel: each firewall takes the rules about a protocol without ports, and finds nothing to change
// the second time.
func TestGuardOfAProtocolInTheKernel(t *testing.T) {
	for _, f := range flavours() {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			c := testConfig(f)
			c.Guard = Guard{Protocol: unix.IPPROTO_IPIP, Peers: true, Underlay: "lo"}
			r := testRules(t, f, c)
			set := testSet("198.51.100.1", "2001:db8::1")
			apply(t, r, set)
			first := listing(t, f)
			if !ofThePort(first) || strings.Contains(first, "dport") {
				t.Errorf("no rules about the protocol:\n%s", first)
			}
			apply(t, r, set)
			if again := listing(t, f); again != first || r.Status().Repaired != 0 {
				t.Errorf("the second time, repaired %d:\n%s", r.Status().Repaired, again)
			}
		})
	}
}
