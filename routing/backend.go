package routing

import (
	"log/slog"
	"net/netip"
	"time"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/routehook"
	"weft/routing/underlay"
	"weft/tunnel"
	"weft/tunnel/port"
)

// KeptFresh is for how long what waits in queues that nobody reads is worth delivering. Queues hold the
// oldest packets, and drop what comes later.
const KeptFresh = plane.KeptFresh

// Status is what weft status shows of a backend.
type Status struct {
	// Type is the backend's.
	Type string
	// Devices are those in use, the one that people are shown first; nil before there are any. They are ours,
	// but for a backend that has none of its own: there it is the link that packets leave by.
	Devices []string
	// Up says, for a backend without a device, that everything is in place that this node itself
	// needs, so that pods can be given addresses. Peers may be missing.
	Up bool
	// MTU is the largest inner packet, in bytes.
	MTU int
	// Path is how packets move between device and underlay: the name of the data plane's path (tunnel.Path), or
	// PathKernel, PathCommand, PathHook or PathNone.
	Path string
	// Encrypt is the word of type auto's key: what may not leave, nor come, unless it is encrypted; "" for a
	// type without such rules.
	Encrypt string
	// Underlay carries the datagrams. UnderlayLost says what is missing of it now; empty
	// if nothing is.
	Underlay     underlay.Link
	UnderlayLost string
	// Forwarding says what became of the underlay device's feature rx-udp-gro-forwarding; "" if weft has
	// nothing to do with it.
	Forwarding string
	// UnderlayDevices are the underlay's link and those under it, with what they do for datagrams; none for a
	// backend whose packets the data plane does not move.
	UnderlayDevices underlay.Devices
	// InPlace says that device, addresses, routes and table are as the latest set wants. A peer that a
	// command failed for is among Skipped, and in LastError.
	InPlace bool
	// LastReconcile is when the kernel was last compared; LastError what was wrong then.
	LastReconcile time.Time
	LastError     string
	// Pending is how many changes of the last plan are not made yet. Repaired counts changes
	// that undid somebody else's since the start.
	Pending  int
	Repaired uint64
	// Peers is how many are in the table; Skipped are the records that are not, and why.
	Peers   int
	Skipped []Skipped
	// Reached says for each subnet of each peer how packets get there. A backend that reaches all
	// of them alike lists only those that it does not reach.
	Reached []Reached
	// Notes are sentences for the operator: what works less well than it could, and what would help.
	Notes []string
	// Hook is what a controller of the operator's made of the routes; the zero HookStatus for a type without
	// one.
	Hook HookStatus
	// Rules are the host's; the zero Status without BackendConfig.Rules.
	Rules hostrules.Status
	// Adopted lists what was taken over from flannel at the start.
	Adopted []string
}

// Device is the one of Devices that people are shown; "" before there is one.
func (s Status) Device() string {
	if len(s.Devices) == 0 {
		return ""
	}
	return s.Devices[0]
}

// Skipped is a peer's record that a backend does not use, or not wholly. It is comparable.
type Skipped struct {
	// Peer is what people call the node, or its subnet; Node its identity, "" if it has none; and Address where
	// it is reached.
	Peer, Node string
	Address    netip.Addr
	Reason     string
	// Subnets is the record.
	Subnets lease.Subnets
}

// BackendConfig is what every backend is made from.
type BackendConfig struct {
	// Kernel is the namespace to work in. It is borrowed until Run or Close returns.
	Kernel *kernel.Kernel
	// Outside is the namespace that the underlay is in, if that is another one; nil means Kernel's. It is
	// borrowed as Kernel is. Only the data plane carries packets between two namespaces.
	Outside *kernel.Kernel
	// Unprivileged says that this process has no rights over the underlay's namespace: it changes nothing there,
	// and sends by sockets of UDP only.
	Unprivileged bool
	// Network is the network config.
	Network Network
	// Node is this node's identity. The backend derives from it what it chooses for the node, such as
	// a MAC, so that it is the same after a reboot.
	Node string
	// StateDir is a directory that outlives the process; "" for none.
	StateDir string
	// KeyFile is the file of this node's private key, for a type that has one; "" for WireGuardKeyFile in
	// StateDir.
	KeyFile string
	// Workers is how many workers a data plane of our own has; 0 means tunnel.DefaultWorkers.
	Workers int
	// Forwarding, if not "", is auto, on or off, and counts instead of the network config's.
	Forwarding string
	// Former are networks in which this node was before: what it had in them is removed.
	Former []netip.Prefix
	// Underlay is what underlay.Choose chose with UnderlayOptions.
	Underlay        underlay.Link
	UnderlayOptions underlay.Options
	// UnderlayChanged, if not nil, is called with the new state when the underlay's
	// addresses or MTU changed, so that the lease record can follow. It must not block,
	// nor call Apply.
	UnderlayChanged func(underlay.Link)
	// PortLost, if not nil, is called for each port of a data plane of our own that died by itself, also for
	// pods' ports. It must not block.
	PortLost func(tunnel.PortID)
	// Inherited are the ports of an earlier data plane of our own, by the names that Keep was told. Those that
	// are what is wanted now are taken up with what waits in their queues, and the others are closed and made
	// anew. The descriptors are the backend's from the constructor on, also if that returns an error.
	Inherited map[string]port.Kept
	// Away is for how long nobody read the Inherited: after more than KeptFresh what waits in their queues is
	// discarded.
	Away time.Duration
	// Keep, if not nil, is told of each port of a data plane of our own that was made, so that it can be kept
	// for the next process, and with nil of each that is closed for good: until whoever has duplicates has
	// closed them, a port in its place cannot be opened, which is tried again. k is borrowed. It is called with
	// the backend's lock held, so that it must not call the backend.
	Keep func(name string, k *port.Kept)
	// MayRunCommands returns nil if this node may run the commands in the network config (type extension),
	// else why not. If MayRunCommands itself is nil, no command is run.
	MayRunCommands func() error
	// Hook says where the controller of type route-hook is; nil for none. It is of this host alone, and of no
	// store.
	Hook *routehook.Options
	// Rules are the host's rules, which the backend keeps beside the kernel's objects; nil for none. Its Guard
	// is the backend's to say.
	Rules *hostrules.Config
	// Logger; nil discards.
	Logger *slog.Logger
}
