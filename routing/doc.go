// Package routing is the kernel's side of weft: it gives the overlay's device
// its addresses and routes, and feeds the data plane.
//
//	lease.Set ──Apply──> a type's want ─┐
//	                                    ├─ Plan (pure) ──> adds, then deletes ──> kernel
//	kernel ──────────────list──> have ──┘
//	                      want ──> tunnel.Spec ──> tunnel.Table ──swap──> data plane
//	netlink notification, 30 s timer, failed attempt ──> the same again
//
// There is one Node for every type. It is level-triggered: it is handed the complete set of peers, reads
// what the kernel has, and makes the difference. It never acts on an event, so a
// missed one, a crash between two kernel calls and a route deleted by hand heal
// alike.
//
// # What is ours
//
// A link is ours if its alias is weft; a route is ours if its protocol is
// RouteProtocol and it leaves by our device or lies within our network; an address
// is ours if it is on our device and within our network, and so is a permanent
// neighbour; a permanent forwarding entry is, if it is on our device. Objects of flannel's exact
// name and shape are taken over, and that is logged. Nothing else is changed or
// deleted.
//
// # Where things are
//
// network.go reads the network configuration, once; decode.go reads a type's keys by the tags of its
// settings. types.go says what a type of backend is, and lists them; each type is the file of its name
// (udp.go, vxlan.go, auto.go, hostgw.go, alloc.go, extension.go), and settings.go has the keys that types
// share. want.go is what a type says of a set. ways.go is how it gets there: the subnets of peers, who owns
// an address, and the table of the data plane; tunstate.go is what a TUN has. node_linux.go has the loop,
// reconcile_linux.go the steps of one reconcile, devices_linux.go what these do to the kernel.
//
// Package internal/plane is the data plane with its ports. Package underlay chooses the link that carries the
// datagrams and finds whom the overlay would cut off, internal/kernel is the edge to netlink with the plan,
// hostrules has the rules of the firewall, which rules_linux.go keeps. leftovers_linux.go removes what
// another backend left, and presence says who else is there.
package routing
