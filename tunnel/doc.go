// Package tunnel is the user-space data plane: it carries inner IP packets
// between this node's ports and the other nodes.
//
//	egress:   inner port ─> ring slot ─> parse inner destination ─> peer table
//	          ─> encapsulate in place ─> batch ─> underlay port
//	ingress:  underlay port ─> ring slot ─> outer source ─> decapsulate in place
//	          ─> inner source and destination ─> batch ─> inner port
//
// A packet meets the files in this order, and none twice; docs/architecture.md walks along it.
//
//   - worker.go says who moves it: one worker reads, decides and writes.
//   - portable_linux.go is path portable, both ends, on top of udp_linux.go.
//   - tun_linux.go, tunqueues_linux.go and tunoffload_linux.go read inner packets; ipip_linux.go (format
//     ipip), sockets_linux.go (path socket) and rawread_linux.go (path raw) read datagrams. They read into a
//     Packet (packet.go) in a Ring (ring.go).
//   - egress.go (decideOut), or ingress.go (decideIn) with vtep.go, decides about it without I/O, with what
//     table.go, reach.go and package pathmtu know of the peer. For a pod's port podpackets.go is its router, and
//     byhost.go, with package natflow, finds the answers that the host's rules are to translate back. drops.go
//     has the reasons for a drop.
//   - deliver.go does what was decided: it hands the packet to the port that it leaves by, port.go, whole,
//     cut or in fragments, and accounts for it; icmp.go tells the sender why it cannot pass, and pathprobe.go
//     answers probes.
//   - udpoffload_linux.go and raw_linux.go are ports of the underlay. runwriter_linux.go and sendrun_linux.go
//     make one send of many packets for them; rawsend_linux.go, frames_linux.go and tap_linux.go, or
//     sockets_linux.go, send it. outlet.go says whether a superpacket leaves whole, and runcheck.go asks
//     peers whether runs arrive. merge_linux.go makes superpackets of what goes into the TUN.
//   - syscall_linux.go has the system calls.
//
// Beside it stand engine.go, which attaches ports and starts workers, portset.go, what workers see of ports,
// pod.go, what is counted of a pod's, and podtun_linux.go, which makes one from a descriptor; poller_linux.go
// and linger_linux.go, how workers wait; spread.go and udpspread_linux.go, how several workers share a port;
// rawfilter.go, which frames are ours; package fair, fairkeep.go and fairfilter_linux.go, which keep one peer
// from filling a receive queue for all, and errorqueue_linux.go errors from keeping a worker from packets;
// capture.go and look.go, which copy packets for somebody who looks; offload.go and counters.go, what is
// reported.
//
// The unit is a Port: the host's TUN, a pod's TUN, or the underlay socket. A few workers each own a Ring and
// poll many ports; a worker runs a batch to completion (read, decide, write) before it reads again, so a
// packet is never handed from one goroutine to another and a lone packet leaves at once. Ports come and go
// while packets flow. The workers consult a Table, an immutable snapshot that Engine.Swap replaces.
//
// Nothing on that path allocates, takes a lock or logs; but on path portable the libraries do the first two.
package tunnel
