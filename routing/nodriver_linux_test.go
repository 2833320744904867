package routing

import (
	"errors"
	"strings"
	"testing"

	"weft/routing/internal/kernel"
	"weft/test/netns"
)

// TestNoDriver has weft carry packets where the kernel cannot, and say so, unless the config forbids it.
func TestNoDriver(t *testing.T) {
	k := inNamespace(t)
	for _, kind := range []string{kernel.KindVXLAN, kernel.KindIPIP, kernel.KindWireGuard} {
		for _, err := range []error{k.Probe(kind), kernel.ProbeAside(kind)} {
			if err != nil && !errors.Is(err, kernel.NoDriver(kind)) {
				t.Errorf("probe for %s: %v", kind, err)
			}
		}
	}
	if out := ip(t, "link"); strings.Contains(out, "weft-probe") {
		t.Errorf("the probe is left:\n%s", out)
	}
	for keys, path := range map[string]string{
		`"vxlan"`: "raw", `"auto"`: "raw", `"vxlan","Userspace":"never"`: PathKernel, `"ipip"`: "socket",
		`"wireguard"`: PathUserspace,
	} {
		// Each has its own namespace: a program that another test starts holds a closed socket for a moment.
		t.Run(keys, func(t *testing.T) {
			k := inNamespace(t)
			k.Lacks = []string{kernel.KindVXLAN, kernel.KindIPIP, kernel.KindWireGuard}
			netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
			b := openKernelBackend(t, k, `{"Network":"10.5.0.0/16","Backend":{"Type":`+keys+`}}`, nil)
			if path != PathKernel {
				b.apply(kernelSet(b))
			}
			if st := b.Status(); st.Path != path ||
				path != PathKernel && (len(st.Notes) != 1 || !strings.Contains(st.Notes[0], "this kernel has no")) {
				t.Errorf("path %s, notes %q", st.Path, st.Notes)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	network, err := Parse([]byte(`{"Network":"10.5.0.0/16","Backend":{"Type":"ipip","Userspace":"always"}}`))
	if err != nil {
		t.Fatal(err)
	}
	netns.EtherLink(t, "eth0", 1500, "192.0.2.1/24")
	c := newBackendConfig(t, k, network)
	c.Unprivileged = true
	if _, err := NewNode(t.Context(), c); err == nil || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("an ordinary user is told %v", err)
	}
}
