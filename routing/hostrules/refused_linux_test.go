package hostrules

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"weft/test/netns"
)

// A table that cannot be changed does not disturb those that can, however often it is tried.
func TestATableThatIsRefused(t *testing.T) {
	for _, f := range flavours()[1:] {
		t.Run(f.name, func(t *testing.T) {
			inNamespace(t)
			r := testRules(t, f, testConfig(f))
			for _, s := range r.sides {
				i, ok := s.firewall.(*iptables)
				if !ok || s.kind != f.kind {
					continue
				}
				found, err := i.find(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				found.restore = withoutNAT(t, found.restore)
				i.tools = &found
			}
			for try := range 4 {
				if err := r.Apply(t.Context(), testSet("198.51.100.1")); err == nil {
					t.Fatal("a table was refused, and nobody says so")
				}
				for chain, jumps := range map[string]int{"FORWARD": 1, "-t mangle FORWARD": 1, "-t mangle INPUT": 1} {
					at := strings.Fields(chain)
					listing := sh(t, f.name+" "+strings.Join(at[:len(at)-1], " ")+" -S "+at[len(at)-1])
					if n := strings.Count(listing, " -j FLANNEL-") + strings.Count(listing, " -j WEFT-"); n != jumps {
						t.Errorf("after %d tries: %d jumps, want %d:\n%s", try+1, n, jumps, listing)
					}
				}
			}
		})
	}
}

// withoutNAT makes a program that restores as restore does, up to the table nat, which it refuses.
func withoutNAT(t *testing.T, restore string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "restore")
	script := fmt.Sprintf("#!/bin/sh\nall=$(cat)\nprintf '%%s\\n' \"$all\" | sed '/^\\*nat/,$d' | %s \"$@\" || exit\ncase $all in *'*nat'*) exit 1 ;; esac\n", restore)
	netns.Script(t, path, script)
	return path
}
