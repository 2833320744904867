package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"weft/test/lab"
)

// labFlags are the flags of `weft lab run` and `weft lab up`.
type labFlags struct {
	name, backend, path, store, config string
	nodes, pods, mtu                   int
	ipv6, direct, rootless, keepLogs   bool
	weftd                              string
	weftdArgs, endpoints               []string
}

func (f *labFlags) bind(cmd *cobra.Command) {
	s := cmd.Flags()
	s.IntVar(&f.nodes, "nodes", 2, "number of nodes")
	s.IntVar(&f.pods, "pods", 2, "pods on each node")
	s.StringVar(&f.backend, "backend", "udp", "weftd's backend (udp, vxlan, vxlan-user, host-gw, auto), or kernel-host-gw or kernel-vxlan: set up by hand, without weftd")
	s.StringVar(&f.path, "path", "", "weftd's data path: auto, raw, socket or portable")
	s.BoolVar(&f.ipv6, "ipv6", false, "IPv6 for the pods, beside IPv4")
	s.StringVar(&f.config, "net-conf", "", "`file` with the network config, instead of --backend, --path and --ipv6")
	s.StringVar(&f.store, "store", "embedded", "where the leases are: embedded (etcd in node1's weftd), separate (an etcd process of its own), external")
	s.StringSliceVar(&f.endpoints, "etcd-endpoints", nil, "`URLs` of an external store, as seen from the nodes")
	s.IntVar(&f.mtu, "mtu", 1500, "MTU of the wire between the nodes, in bytes")
	s.BoolVar(&f.direct, "direct", false, "one cable between two nodes, instead of a bridge")
	s.StringVar(&f.weftd, "weftd", "", "the weftd to run (default: the one beside this program, then in $PATH)")
	s.StringArrayVar(&f.weftdArgs, "weftd-arg", nil, "further argument for every weftd; may be given several times")
	s.BoolVar(&f.rootless, "rootless", false, "use a user namespace even as root")
	s.BoolVar(&f.keepLogs, "keep-logs", false, "leave logs and state behind")
}

// spec is the lab that the flags ask for.
func (f *labFlags) spec() (lab.Spec, error) {
	s := lab.Spec{
		Nodes: f.nodes, PodsPerNode: f.pods, MTU: f.mtu, Direct: f.direct,
		WeftdPath: f.weftd, WeftdArgs: f.weftdArgs, Endpoints: f.endpoints,
	}
	for _, n := range []struct {
		flag             string
		got, least, most int
	}{{"nodes", f.nodes, 1, lab.MaxNodes}, {"pods", f.pods, 1, lab.MaxPods}, {"mtu", f.mtu, lab.MinMTU, lab.MaxMTU}} {
		if n.got < n.least || n.got > n.most {
			return s, fmt.Errorf("--%s %d: want %d to %d", n.flag, n.got, n.least, n.most)
		}
	}
	stores := map[string]lab.StoreKind{"embedded": lab.Embedded, "separate": lab.Separate, "external": lab.External}
	if s.Store = stores[f.store]; s.Store == 0 {
		return s, fmt.Errorf("--store %q: want embedded, separate or external", f.store)
	}
	if len(f.endpoints) > 0 {
		s.Store = lab.External
	}
	if f.config != "" {
		text, err := os.ReadFile(f.config)
		s.NetworkConfig = text
		return s, err
	}
	var err error
	s.Driver, s.NetworkConfig, err = f.network()
	return s, err
}

// userVXLAN is the backend vxlan, carried by weft itself.
const userVXLAN = "vxlan-user"

// network is the driver and flannel's JSON for it.
func (f *labFlags) network() (lab.Driver, json.RawMessage, error) {
	backend := map[string]any{"Type": f.backend}
	driver := lab.Weftd
	switch f.backend {
	case "udp", "vxlan", "host-gw", "auto":
	case userVXLAN:
		backend["Type"], backend["Userspace"] = "vxlan", "always"
	case lab.KernelHostGW.String(), lab.KernelVXLAN.String():
		driver = lab.KernelHostGW
		if f.backend == lab.KernelVXLAN.String() {
			driver = lab.KernelVXLAN
		}
		backend["Type"] = strings.TrimPrefix(f.backend, "kernel-")
		if f.path != "" {
			return driver, nil, fmt.Errorf("--path %s: backend %s has no path of ours", f.path, f.backend)
		}
	default:
		return driver, nil, fmt.Errorf("--backend %q: want udp, vxlan, vxlan-user, host-gw, auto, kernel-host-gw or kernel-vxlan", f.backend)
	}
	if f.path != "" {
		if f.backend != "udp" && f.backend != userVXLAN {
			return driver, nil, fmt.Errorf("--path %s: it is the kernel that moves the packets of backend %s: want udp or %s", f.path, f.backend, userVXLAN)
		}
		backend["Path"] = f.path
	}
	config := map[string]any{"Network": "10.42.0.0/16", "Backend": backend}
	if f.ipv6 {
		config["EnableIPv6"], config["IPv6Network"] = true, "fd42::/48"
	}
	text, err := json.Marshal(config)
	return driver, text, err
}
