package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weft/encap"
)

// Drivers, which carry packets between the nodes.
const (
	// Weftd runs a weftd in every node.
	Weftd = "weftd"
	// KernelHostGW sets plain routes between the nodes by hand: the least that the kernel can do.
	KernelHostGW = "kernel-host-gw"
	// KernelVXLAN sets up a vxlan device in every node by hand.
	KernelVXLAN = "kernel-vxlan"
	// WireGuardGo runs a wireguard-go (Spec.WireGuardPath) in every node. It encrypts.
	WireGuardGo = "wireguard-go"
	// Bare leaves the nodes without pods and without a data plane: the caller decides what runs there.
	// Each has a Daemon for a weftd, with the arguments that driver Weftd would give it.
	Bare = "bare"
)

// Stores, in which the leases are.
const (
	// Embedded is the etcd inside node 1's weftd.
	Embedded = "embedded"
	// Separate is an etcd process, of $PATH, in a namespace of its own: Lab.Store.
	Separate = "separate"
	// External is an etcd at Spec.Endpoints that the caller runs where the nodes can reach it.
	External = "external"
)

// Attachments, by which a pod is joined to its node.
const (
	// Bridge joins each pod to its node's bridge by a veth pair.
	Bridge = "bridge"
	// DirectAttach gives each pod a TUN whose other end is weftd's (weft attach). There is no bridge.
	DirectAttach = "direct"
)

// Wires. They differ in what the devices between the nodes can cut, and so in which superpackets cross whole.
//
// A veth pair that is left as it was made passes on superpackets of every kind whole, and joins none
// of the packets that arrive. No network card is like that. On the other wires the nodes' devices
// lack the features that cards lack, and each frame that arrives goes through NAPI and GRO, as behind
// every card's driver: a socket with UDP_GRO gets runs of datagrams, and the inner packets of a
// tunnel are joined.
const (
	// WireFull is a veth pair that is left as it was made.
	WireFull = "full"
	// WireUSO is like a card that cuts TCP and runs of UDP datagrams (UDP_SEGMENT), but not the
	// superpackets of UDP tunnels. So a run crosses whole.
	WireUSO = "uso"
	// WirePlain is like a card that cuts TCP only, as in most virtual machines: the kernel cuts every
	// superpacket of UDP before it leaves.
	WirePlain = "plain"
)

// These are all, in the order in which they are shown. The devices of each wire cut less than those of the
// one before it.
func Wires() []string       { return []string{WireFull, WireUSO, WirePlain} }
func Stores() []string      { return []string{Embedded, Separate, External} }
func Attachments() []string { return []string{Bridge, DirectAttach} }

// Choose returns an error unless value is among those that there are.
func Choose(what, value string, among []string) error {
	if slices.Contains(among, value) {
		return nil
	}
	return fmt.Errorf("%s %q: want one of %s", what, value, strings.Join(among, ", "))
}

// Spec describes a lab. The zero value of a field means its default, so Spec{} describes two
// nodes with two pods each, the udp backend and an embedded etcd.
type Spec struct {
	// Name is for messages; "lab" by default.
	Name string
	// Nodes is the number of nodes at the start, 1 to MaxNodes; 2 by default.
	Nodes int
	// PodsPerNode is 1 to MaxPods; 2 by default.
	PodsPerNode int
	// Driver is Weftd by default.
	Driver string
	// Attach is Bridge by default. DirectAttach goes with driver Weftd, and with backends whose packets weft
	// carries.
	Attach string
	// Rootless has each node's weftd run by an ordinary user, without a capability over the node, and its TUN
	// and its pods in namespaces of that user's. It goes with driver Weftd, and with backends whose packets weft
	// carries.
	Rootless bool
	// NetworkConfig is flannel's JSON. By default it has Network 10.42.0.0/16 and the udp backend.
	NetworkConfig json.RawMessage
	// Store is Embedded by default. Drivers other than Weftd use no store.
	Store string
	// Endpoints are the URLs of an External store.
	Endpoints []string
	// WeftdPath is the daemon; by default the weftd beside the running program, then in $PATH. The weft beside
	// it attaches pods directly.
	WeftdPath string
	// WeftdArgs are appended to every weftd's arguments.
	WeftdArgs []string
	// WireGuardPath is the program for WireGuardGo. It has to make its control socket in its working directory,
	// so it is built with -ldflags='-X golang.zx2c4.com/wireguard/ipc.socketDirectory=.'.
	WireGuardPath string
	// StateDir holds logs, sockets and caches, with a folder for each node. By default it is a
	// temporary one that Close removes. Keep it short: a Unix socket's path has at most 107 bytes.
	StateDir string
	// KeepState leaves StateDir in place at Close.
	KeepState bool
	// MTU of the underlay, in bytes; 1500 by default.
	MTU int
	// Wire says what the devices between the nodes cut; WireFull by default.
	Wire string
	// Direct joins two nodes by one veth pair, without a bridge between them.
	Direct bool
	// Nice is added to the nice value of every weftd (nice(1)). A value below 0 needs CAP_SYS_NICE. With it
	// weftd gets a processor before other programs, so that it loses no packet because the machine is busy.
	Nice int
	// ReadyTimeout bounds the time from a weftd's start to its readiness; 30 s by default.
	ReadyTimeout time.Duration
	// Progress, if set, is called with one line about each step that is done. Calls come one at a time.
	Progress func(line string)
}

// Limits of a Spec.
const (
	MaxNodes = 250
	MaxPods  = 200
	MinMTU   = encap.MinMTU4
	MaxMTU   = 65535
)

// maxSocketPath is sizeof(sockaddr_un.sun_path) less the final zero (unix(7)).
const maxSocketPath = 107

// withDefaults fills in the defaults. Its error has every fault at once.
func (s Spec) withDefaults() (Spec, error) {
	setDefault(&s.Name, "lab")
	setDefault(&s.Nodes, 2)
	setDefault(&s.PodsPerNode, 2)
	setDefault(&s.Driver, Weftd)
	setDefault(&s.Attach, Bridge)
	setDefault(&s.Store, Embedded)
	setDefault(&s.MTU, 1500)
	setDefault(&s.Wire, WireFull)
	setDefault(&s.ReadyTimeout, 30*time.Second)
	if s.Progress == nil {
		s.Progress = func(string) {}
	}
	if len(s.NetworkConfig) == 0 {
		s.NetworkConfig = json.RawMessage(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp"}}`)
	}
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(s.Nodes >= 1 && s.Nodes <= MaxNodes, "nodes: %d, want 1 to %d", s.Nodes, MaxNodes)
	check(s.PodsPerNode >= 1 && s.PodsPerNode <= MaxPods, "pods per node: %d, want 1 to %d",
		s.PodsPerNode, MaxPods)
	faults = append(faults, Choose("wire", s.Wire, Wires()), Choose("attach", s.Attach, Attachments()),
		Choose("store", s.Store, Stores()),
		Choose("driver", s.Driver, []string{Weftd, KernelHostGW, KernelVXLAN, WireGuardGo, Bare}))
	check(s.MTU >= MinMTU && s.MTU <= MaxMTU, "mtu: %d, want %d to %d", s.MTU, MinMTU, MaxMTU)
	check(json.Valid(s.NetworkConfig), "network config is not JSON: %s", s.NetworkConfig)
	check(!s.Direct || s.Nodes == 2 && s.Store != Separate,
		"direct needs exactly two nodes and no separate store")
	check((s.Store == External) == (len(s.Endpoints) > 0),
		"endpoints go with an external store, and only with that")
	check(s.Attach != DirectAttach || s.Driver == Weftd,
		"pods attached directly need weftd to carry the packets: driver %s does not", s.Driver)
	check(!s.Rootless || s.Driver == Weftd, "nodes without root need weftd to carry the packets: driver %s "+
		"does not", s.Driver)
	check(s.Driver != WireGuardGo || s.WireGuardPath != "", "driver %s needs the program's path", WireGuardGo)
	faults = append(faults, s.findPrograms())
	return s, errors.Join(faults...)
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

func (s *Spec) findPrograms() error {
	if s.Driver == WireGuardGo {
		return checkTUN()
	}
	if s.Driver != Weftd {
		return nil
	}
	faults := []error{checkTUN()}
	if s.WeftdPath == "" {
		path, err := FindWeftd()
		s.WeftdPath, faults = path, append(faults, err)
		if s.Store == Embedded && err == nil {
			faults = append(faults, findWeftEtcd(path))
		}
	}
	if s.Attach == DirectAttach {
		if _, err := exec.LookPath(s.weft()); err != nil {
			faults = append(faults, fmt.Errorf("pods are attached directly by weft, which is not beside %s (make "+
				"build): %w", s.WeftdPath, err))
		}
	}
	if s.Store == Separate {
		if _, err := exec.LookPath("etcd"); err != nil {
			faults = append(faults, fmt.Errorf("a separate store needs etcd (apt-get install etcd-server): %w", err))
		}
	}
	return errors.Join(faults...)
}

// weft is the path of the operator's command.
func (s *Spec) weft() string { return filepath.Join(filepath.Dir(s.WeftdPath), "weft") }

// findWeftEtcd returns an error if weftd would not find the program of its embedded store.
func findWeftEtcd(weftd string) error {
	const name = "weft-etcd"
	_, beside := exec.LookPath(filepath.Join(filepath.Dir(weftd), name))
	if _, err := exec.LookPath(name); err != nil && beside != nil {
		return fmt.Errorf("the embedded store is the program %s, which is neither beside %s nor in $PATH: %w", name,
			weftd, err)
	}
	return nil
}

// checkTUN returns an error that says what to do if this process may not open the TUN device. A user
// namespace does not help, since for the permissions of the host's files its root is an ordinary user.
func checkTUN() error {
	const path = "/dev/net/tun"
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: sudo modprobe tun; in a container, pass the device in", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: run it as root, or: sudo chmod 0666 %s (which most distributions have as its mode)",
			err, path)
	default:
		return err
	}
}

// FindWeftd returns the path of the weftd beside the running program, else of the one in $PATH.
func FindWeftd() (string, error) {
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), "weftd")); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("weftd")
	if err != nil {
		return "", fmt.Errorf("weftd is neither beside this program nor in $PATH (make build): %w", err)
	}
	return path, nil
}

// overlay is the part of the network config that the lab itself reads.
type overlay struct {
	Network     netip.Prefix
	IPv6Network netip.Prefix
	EnableIPv4  *bool
	EnableIPv6  bool
}

func (s Spec) overlay() (overlay, error) {
	var o overlay
	if err := json.Unmarshal(s.NetworkConfig, &o); err != nil {
		return o, fmt.Errorf("network config: %w", err)
	}
	if o.EnableIPv4 != nil && !*o.EnableIPv4 {
		o.Network = netip.Prefix{}
	}
	if !o.EnableIPv6 {
		o.IPv6Network = netip.Prefix{}
	}
	if !o.Network.IsValid() && !o.IPv6Network.IsValid() {
		return o, errors.New("network config: neither family has a network")
	}
	return o, nil
}
