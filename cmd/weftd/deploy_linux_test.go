package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"weft/test/netns"
)

// unitCapabilities are those that the example unit leaves, as setpriv(1) spells them.
func unitCapabilities(t *testing.T) []string {
	t.Helper()
	unit, err := os.ReadFile("deploy/weftd.service")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(string(unit))
	if line == nil {
		t.Fatal("the unit bounds no capabilities")
	}
	return strings.Fields(strings.ToLower(strings.ReplaceAll(line[1], "CAP_", "")))
}

func TestUnitLeavesNoMoreCapabilitiesThanNeeded(t *testing.T) {
	if got := unitCapabilities(t); !slices.Equal(got,
		[]string{"net_admin", "net_raw", "net_bind_service", "dac_read_search"}) {
		t.Errorf("got %q", got)
	}
}

func TestUnitReadsKeysOfOtherUsers(t *testing.T) {
	netns.Root(t, "only root can give a file to another user")
	if _, err := exec.LookPath("setpriv"); err != nil {
		t.Fatalf("%v: apt-get install util-linux", err)
	}
	key := filepath.Join(t.TempDir(), "etcd.key")
	if err := os.WriteFile(key, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(key, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	bound := "-all,+" + strings.Join(unitCapabilities(t), ",+")
	if out, err := exec.Command("setpriv", "--bounding-set="+bound, "cat", key).CombinedOutput(); err != nil ||
		string(out) != "secret" {
		t.Errorf("with %s: %v: %s", bound, err, out)
	}
}
