package benchcmd

import (
	"slices"
	"strings"
	"testing"
)

func TestBenchAddresses(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1": "10.0.0.1:5210", "10.0.0.1:0": "10.0.0.1:0", "fd00::1": "[fd00::1]:5210",
		"localhost:77": "127.0.0.1:77",
		"[fd00::1]":    "[fd00::1]:5210", "[fd00::1]:9": "[fd00::1]:9", "::ffff:10.0.0.1": "10.0.0.1:5210",
	} {
		if got, err := resolve(t.Context(), given, false); err != nil || got.String() != want {
			t.Errorf("--to %q: %v, %v, want %s", given, got, err, want)
		}
	}
	for _, bad := range []string{"nobody.invalid", ":70000", "10.0.0.1:x", "fd00::1:99999"} {
		if got, err := resolve(t.Context(), bad, false); err == nil {
			t.Errorf("--to %q: %v", bad, got)
		}
	}
}

func TestBenchArguments(t *testing.T) {
	got := passedOn([]string{"weft", "bench", "--lab", "x", "--quick", "--from=a", "--to", "b", "--json", "-"})
	if want := []string{"--quick", "--json", "-"}; !slices.Equal(got, want) {
		t.Errorf("passed on %q, want %q", got, want)
	}
	if got := strings.Join(shown([]string{"/x/weft", "bench", "--to", "a b"}), " "); got != `bench --to "a b"` {
		t.Errorf("shown: %s", got)
	}
}
