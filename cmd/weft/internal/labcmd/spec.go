package labcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"weft/cmd/weft/internal/cli"
	"weft/lease"
	"weft/routing"
	"weft/test/lab"
)

// labFlags are the flags of `weft lab run` and `weft lab up`.
type labFlags struct {
	lab.Spec
	name, backend, path, config string
	ipv6, keepLogs              bool
}

func (f *labFlags) bind(cmd *cobra.Command) {
	s := cmd.Flags()
	s.IntVar(&f.Nodes, "nodes", 2, "number of nodes")
	s.IntVar(&f.PodsPerNode, "pods", 2, "pods on each node")
	s.StringVar(&f.backend, "backend", lease.DefaultBackend,
		fmt.Sprintf("weftd's backend (%s), or %s or %s: set up by hand, without weftd",
			strings.Join(labBackends(), ", "), lab.KernelHostGW, lab.KernelVXLAN))
	s.StringVar(&f.path, "path", "", "weftd's data path: "+strings.Join(routing.PathWords(), ", "))
	s.BoolVar(&f.ipv6, "ipv6", false, "IPv6 for the pods, beside IPv4")
	s.StringVar(&f.config, "net-conf", "", "`file` with the network config, instead of --backend, --path and "+
		"--ipv6")
	s.StringVar(&f.Store, "store", lab.Embedded,
		"where the leases are: embedded (etcd in node1's weftd), separate (an etcd process of its own), external")
	s.StringSliceVar(&f.Endpoints, "etcd-endpoints", nil, "`URLs` of an external store, as seen from the nodes")
	s.IntVar(&f.MTU, "mtu", 1500, "MTU of the wire between the nodes, in bytes")
	s.StringVar(&f.Wire, "wire", lab.WireFull,
		"what the wire between the nodes cuts: full (nothing, a veth pair as it is made), uso (a tunnel's "+
			"superpackets, as a card with UDP segmentation), plain (those of UDP too, as most virtual machines); "+
			"what was cut is joined by GRO")
	s.StringVar(&f.Attach, "attach", lab.Bridge,
		"how pods are joined to their nodes: bridge (a veth pair to the node's bridge), direct (a TUN whose "+
			"other end is weftd's, as weft attach makes)")
	s.BoolVar(&f.Direct, "direct", false, "one cable between two nodes, instead of a bridge")
	s.StringVar(&f.WeftdPath, "weftd", "",
		"the weftd to run (default: the one beside this program, then in $PATH)")
	s.StringArrayVar(&f.WeftdArgs, "weftd-arg", nil,
		"further argument for every weftd; may be given several times")
	s.BoolVar(&f.Rootless, "rootless", false,
		"nodes without root: each weftd is an ordinary user's, with TUN and pods in namespaces of that user's; "+
			"the lab itself is in a user namespace then, even root's")
	s.BoolVar(&f.keepLogs, "keep-logs", false, "leave logs and state behind")
	cli.CompleteFlags(cmd, map[string]cli.Completer{
		"backend": cli.OneOf(append(labBackends(), lab.KernelHostGW, lab.KernelVXLAN)...),
		"path":    cli.OneOf(routing.PathWords()...), "store": cli.OneOf(lab.Stores()...),
		"wire": cli.OneOf(lab.Wires()...), "attach": cli.OneOf(lab.Attachments()...),
	})
}

// spec is the lab that the flags ask for.
func (f *labFlags) spec() (lab.Spec, error) {
	s := f.Spec
	for _, n := range []struct {
		flag             string
		got, least, most int
	}{{"nodes", s.Nodes, 1, lab.MaxNodes}, {"pods", s.PodsPerNode, 1, lab.MaxPods},
		{"mtu", s.MTU, lab.MinMTU, lab.MaxMTU}} {
		if n.got < n.least || n.got > n.most {
			return s, fmt.Errorf("--%s %d: want %d to %d", n.flag, n.got, n.least, n.most)
		}
	}
	err := errors.Join(lab.Choose("--wire", s.Wire, lab.Wires()),
		lab.Choose("--attach", s.Attach, lab.Attachments()), lab.Choose("--store", s.Store, lab.Stores()))
	if err != nil {
		return s, err
	}
	if len(s.Endpoints) > 0 {
		s.Store = lab.External
	}
	if f.config != "" {
		text, err := os.ReadFile(f.config)
		s.NetworkConfig = text
		return s, err
	}
	if s.Driver, s.NetworkConfig, err = f.network(); err != nil {
		return s, err
	}
	return s, nil
}

// userVXLAN is the backend vxlan, carried by weft itself.
const userVXLAN = "vxlan-user"

// labBackends are those that weftd runs in a lab: the types of routing whose packets weft or the kernel
// moves, and userVXLAN.
func labBackends() (names []string) {
	for _, name := range append(routing.BuiltIn().Names(), userVXLAN) {
		text, _ := json.Marshal(map[string]any{"Network": "10.0.0.0/8", "Backend": labBackend(name)}) // of strings
		if n, _ := routing.Parse(text); n.Facts().Carrier != routing.CarrierOthers {
			names = append(names, name)
		}
	}
	return names
}

// labBackend is the Backend object for one of them.
func labBackend(name string) map[string]any {
	if name == userVXLAN {
		return map[string]any{"Type": "vxlan", "Userspace": "always"}
	}
	return map[string]any{"Type": name}
}

// network is the driver and flannel's JSON for it.
func (f *labFlags) network() (driver string, config json.RawMessage, err error) {
	backend := labBackend(f.backend)
	driver = lab.Weftd
	switch {
	case f.backend == lab.KernelHostGW || f.backend == lab.KernelVXLAN:
		driver = f.backend
		backend["Type"] = strings.TrimPrefix(f.backend, "kernel-")
		if f.path != "" {
			return driver, nil, fmt.Errorf("--path %s: backend %s has no path of ours", f.path, f.backend)
		}
	case !slices.Contains(labBackends(), f.backend):
		return driver, nil, fmt.Errorf("--backend %q: want %s, %s or %s", f.backend,
			strings.Join(labBackends(), ", "), lab.KernelHostGW, lab.KernelVXLAN)
	}
	if f.path != "" {
		backend["Path"] = f.path
	}
	network := map[string]any{"Network": "10.42.0.0/16", "Backend": backend}
	if f.ipv6 {
		network["EnableIPv6"], network["IPv6Network"] = true, "fd42::/48"
	}
	config, err = json.Marshal(network)
	if n, bad := routing.Parse(config); f.path != "" && bad == nil && n.Facts().Carrier != routing.CarrierWeft {
		return driver, nil, fmt.Errorf("--path %s: it is the kernel that moves the packets of backend %s: want udp "+
			"or %s", f.path, f.backend, userVXLAN) // weftd would ignore it
	}
	return driver, config, err
}

// NameLab adds --lab, by which every command names a lab.
func NameLab(cmd *cobra.Command, name *string, value, usage string) {
	cmd.Flags().StringVar(name, "lab", value, usage)
	cli.CompleteFlags(cmd, map[string]cli.Completer{"lab": completeLabs})
}
