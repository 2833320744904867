package labcmd

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"weft/test/lab"
	"weft/test/lab/holder"
)

func TestLabFlagsBecomeASpec(t *testing.T) {
	file := t.TempDir() + "/net-conf.json"
	if err := os.WriteFile(file, []byte(`{"Network":"10.9.0.0/16"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	rootless := lab.Spec{Rootless: true}
	for _, c := range []struct {
		name   string
		flags  labFlags
		driver string
		config string
		fault  string
	}{
		{"default", labFlags{backend: "udp"}, lab.Weftd,
			`{"Backend":{"Type":"udp"},"Network":"10.42.0.0/16"}`, ""},
		{"path and IPv6", labFlags{backend: "udp", path: "portable", ipv6: true, Spec: lab.Spec{Store: "separate"}}, lab.Weftd,
			`{"Backend":{"Path":"portable","Type":"udp"},"EnableIPv6":true,"IPv6Network":"fd42::/48","Network":"10.42.0.0/16"}`, ""},
		{"baseline", labFlags{backend: "kernel-vxlan"}, lab.KernelVXLAN,
			`{"Backend":{"Type":"vxlan"},"Network":"10.42.0.0/16"}`, ""},
		{"vxlan by weft", labFlags{backend: "vxlan-user", path: "raw"}, lab.Weftd,
			`{"Backend":{"Path":"raw","Type":"vxlan","Userspace":"always"},"Network":"10.42.0.0/16"}`, ""},
		{"file", labFlags{config: file}, "", `{"Network":"10.9.0.0/16"}`, ""},
		{"as documented", labFlags{backend: "udp",
			Spec: lab.Spec{Nodes: lab.MaxNodes, PodsPerNode: 1, MTU: 576}},
			lab.Weftd,
			`{"Backend":{"Type":"udp"},"Network":"10.42.0.0/16"}`, ""},
		{"one node too many", labFlags{backend: "udp", Spec: lab.Spec{Nodes: lab.MaxNodes + 1,
			PodsPerNode: 1, MTU: 576}}, "", "", "--nodes 251: "},
		{"wire", labFlags{backend: "udp", Spec: lab.Spec{Wire: "rope"}}, "", "", `--wire "rope"`},
		{"attachment", labFlags{backend: "udp", Spec: lab.Spec{Attach: "glue"}}, "", "", `--attach "glue"`},
		{"without root", labFlags{backend: "vxlan-user", path: "portable", Spec: rootless},
			lab.Weftd,
			`{"Backend":{"Path":"portable","Type":"vxlan","Userspace":"always"},"Network":"10.42.0.0/16"}`, ""},
		{"no such file", labFlags{config: file + "x"}, "", "", "such"},
		{"backend", labFlags{backend: "carrier-pigeon"}, lab.Weftd, "", "carrier-pigeon"},
		{"store", labFlags{backend: "udp", Spec: lab.Spec{Store: "drawer"}}, "", "", "drawer"},
		{"the kernel has no path", labFlags{backend: "auto", path: "raw"}, lab.Weftd, "", "kernel"},
		{"baseline has no path", labFlags{backend: "kernel-host-gw", path: "raw"},
			lab.KernelHostGW, "", "path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &c.flags
			f.Wire, f.Attach = cmp.Or(f.Wire, lab.WireFull), cmp.Or(f.Attach, lab.Bridge)
			f.Store = cmp.Or(f.Store, lab.Embedded)
			if f.Nodes == 0 {
				f.Nodes, f.PodsPerNode, f.MTU = 2, 2, 1500
			}
			s, err := c.flags.spec()
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Fatalf("%v, want %q", err, c.fault)
				}
				return
			}
			if err != nil || s.Driver != c.driver || string(s.NetworkConfig) != c.config {
				t.Errorf("driver %v, config %s, %v", s.Driver, s.NetworkConfig, err)
			}
		})
	}
	s, err := (&labFlags{backend: "udp",
		Spec: lab.Spec{Wire: "plain", Attach: "direct", Store: "embedded", Nodes: 2, PodsPerNode: 2, MTU: 1500, Endpoints: []string{"http://x:1"}}}).spec()
	if err != nil || s.Store != lab.External || s.Wire != lab.WirePlain || s.Attach != lab.DirectAttach {
		t.Errorf("endpoints alone mean an external store: %v, wire %s, %v", s.Store, s.Wire, err)
	}
}

// A lab that cannot be ended, here since it is gone, keeps no other from being ended.
func TestDownEndsTheOtherLabsToo(t *testing.T) {
	root := t.TempDir()
	t.Setenv("WEFT_LAB_STATE", root)
	leftover := filepath.Join(root, "leftover")
	if err := os.Mkdir(leftover, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := labDown(&cobra.Command{}, []string{"gone", "leftover"}); !errors.Is(err, holder.ErrNoLab) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the leftover is there: %v", err)
	}
}

// A list at the top, which scripts iterate over, stays one: its entries have the version.
func TestLabListStaysAList(t *testing.T) {
	root := t.TempDir()
	t.Setenv("WEFT_LAB_STATE", root)
	for _, want := range []string{"[]", `[{"schema_version":1,"name":"a","alive":false}]`} {
		l, err := holder.List()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := json.Marshal(l); err != nil || string(b) != want {
			t.Errorf("%s, %v, want %s", b, err, want)
		}
		if err := os.MkdirAll(filepath.Join(root, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
