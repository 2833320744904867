package routing

import (
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
)

// Kernel is the netlink edge to one network namespace, the one that it was opened in, whichever thread uses
// it later. It is safe for concurrent use.
type Kernel = kernel.Kernel

// OpenKernel opens the namespace of the calling thread. The caller closes it.
func OpenKernel() (*Kernel, error) { return kernel.OpenKernel() }

// OpenKernelIn opens the namespace of a descriptor, which stays the caller's.
func OpenKernelIn(ns int) (*Kernel, error) { return kernel.OpenKernelIn(ns) }

// RouteProtocol marks our routes ("proto 119" in ip route).
const RouteProtocol = kernel.RouteProtocol

// IngressTables lists the nf_tables tables of family netdev that path raw made in the current network
// namespace.
func IngressTables() ([]string, error) { return kernel.IngressTables() }

// RemoveIngressTable deletes one. The error wraps unix.ENOENT if it is gone.
func RemoveIngressTable(name string) error { return kernel.RemoveIngressTable(name) }

// ForwardingFile, in the state directory, says of which link weft turned rx-udp-gro-forwarding on.
const ForwardingFile = plane.ForwardingFile

// GiveBackForwarding turns off what weftd turned on of the underlay's device, by what it noted in its state
// directory, and says what it turned off: "" for nothing. A dry run only says it. The error wraps unix.EPERM
// without CAP_NET_ADMIN.
func GiveBackForwarding(stateDir string, dry bool) (what string, err error) {
	return plane.GiveBack(stateDir, dry)
}
