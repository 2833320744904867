// Package routing is the kernel's side of weft: it chooses the underlay, gives
// the overlay's device its addresses and routes, and feeds the data plane.
//
//	lease.Set ──Apply──> want ─┐
//	                           ├─ Plan (pure) ──> adds, then deletes ──> kernel
//	kernel ──────list──> have ─┘
//	lease.Set ──> tunnel.Spec (pure) ──> tunnel.Table ──swap──> data plane
//	netlink notification, 30 s timer, failed attempt ──> the same again
//
// A backend is level-triggered: it is handed the complete set of peers, reads
// what the kernel has, and makes the difference. It never acts on an event, so a
// missed one, a crash between two kernel calls and a route deleted by hand heal
// alike.
//
// # What is ours
//
// A link is ours if its alias is Alias; a route is ours if its protocol is
// RouteProtocol and it leaves by our device or lies within our network; an address
// is ours if it is on our device and within our network, and so is a permanent
// neighbour; a permanent forwarding entry is, if it is on our device. Objects of flannel's exact
// name and shape are taken over, and that is logged. Nothing else is changed or
// deleted.
//
// The files stand in that order: underlay.go (which interface carries the
// datagrams), backend.go (what a backend is), plan.go (what to change), sync.go
// (changing it), ways.go (what the overlay would cut off), kernel_linux.go and monitor_linux.go (the netlink edge), and
// controller_linux.go and reconcile_linux.go (the one controller). types.go says what a
// backend type is and lists them; each is the file of its name (udp.go, vxlan.go, auto.go, hostgw.go, alloc.go,
// extension.go), whose keys are read as keys.go has it.
// What a type wants is in want.go's terms; entries.go and vtep.go say what to change of it, neigh_linux.go and
// vtep_linux.go are its netlink edge, and leftovers_linux.go removes what another backend left.
package routing
