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
