// Package tunnel is the user-space data plane: it carries inner IP packets between this node's ports and the
// other nodes.
//
//	egress:   inner port ─> ring slot ─> parse inner destination ─> peer table
//	          ─> encapsulate in place ─> batch ─> underlay port
//	ingress:  underlay port ─> ring slot ─> outer source ─> decapsulate in place
//	          ─> inner source and destination ─> batch ─> inner port
//
// A packet meets the files in this order, and none twice; docs/architecture.md walks along it.
//
//   - worker.go says who moves it: one worker reads, decides and writes.
//   - Package port reads it into a Packet in the worker's Ring.
//   - egress.go (decideOut), or ingress.go (decideIn) with vtep.go, decides about it without I/O, with what
//     table.go, reach.go and package pathmtu know of the peer. For a pod's port podpackets.go is its router,
//     and byhost.go, with package natflow, finds the answers that the host's rules are to translate back.
//   - deliver.go does what was decided: it hands the packet to the port that it leaves by, whole, cut or in
//     fragments, and accounts for it; icmp.go tells the sender why it cannot pass, and pathprobe.go answers
//     probes.
//   - Package port sends it. runcheck.go asks peers whether what is sent in one run arrives.
//
// Beside it stand engine.go, which attaches ports and starts workers, portset.go, what workers see of ports,
// and pod.go, what is counted of a pod's; poller_linux.go and linger_linux.go, how workers wait; spread.go,
// how several workers share a port; package fair and fairkeep.go, which keep one peer from filling a receive
// queue for all; unreachable.go, what ICMP says of a peer; capture.go and look.go, which copy packets for
// somebody who looks; counters.go, what is reported.
//
// The unit is a Port: the host's TUN, a pod's TUN, or the underlay socket. A few workers each own a Ring and
// poll many ports; a worker runs a batch to completion (read, decide, write) before it reads again, so a
// packet is never handed from one goroutine to another and a lone packet leaves at once. Ports come and go
// while packets flow. The workers consult a Table, an immutable snapshot that Engine.Swap replaces.
//
// Nothing on that path allocates, takes a lock or logs; but on path portable the libraries do the first two.
package tunnel
