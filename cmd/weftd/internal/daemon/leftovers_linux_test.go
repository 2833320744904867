package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft/cmd/internal/options"
	"weft/lease"
	"weft/routing"
	"weft/test/netns"
)

// A backend whose packets the kernel moves, or nobody does, gives back the device's feature that a data plane
// had turned on; a data plane tends it.
func TestForwardingIsGivenBackAfterAChangeOfType(t *testing.T) {
	ns := netns.New(t, t.Name())
	for path, given := range map[string]bool{routing.PathKernel: true, routing.PathNone: true,
		routing.PathUserspace: true, "raw": false} {
		const feature = "rx-udp-gro-forwarding"
		if err := ns.SetFeatures("lo", map[string]bool{feature: true}); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		d := &Daemon{cfg: options.Config{CacheDir: dir}, log: discard()}
		g := &overlay{network: Network{config: parse(t, `{"Network":"10.42.0.0/16","Backend":{"Type":"host-gw"}}`)}}
		if !given {
			g.plane = new(routing.Node)
		}
		g.set.Own = lease.Record{Subnets: lease.Subnets{V4: netip.MustParsePrefix("10.42.7.0/24")}}
		err := ns.Do(func() error {
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			if err != nil {
				return err
			}
			place, err := os.Readlink("/proc/thread-self/ns/net")
			if err != nil {
				return err
			}
			note := fmt.Sprintf(`{"link":"lo","index":1,"place":%q}`, strings.TrimSpace(string(boot))+" "+place)
			if err := os.WriteFile(filepath.Join(dir, routing.ForwardingFile), []byte(note), 0o600); err != nil {
				return err
			}
			if g.kernel, err = routing.OpenKernel(); err != nil {
				return err
			}
			defer func() { _ = g.kernel.Close() }()
			d.removeLeftovers(g, routing.Status{Path: path, Up: true, Devices: []string{"lo"}})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		have, err := ns.Features("lo")
		if err != nil || have[feature] == given || !g.swept {
			t.Errorf("path %s: the feature is on: %t, swept %t, %v", path, have[feature], g.swept, err)
		}
	}
}
