// Package tunnel is the user-space data plane: it carries inner IP packets between this node's ports and the
// other nodes.
//
//	egress:   inner port ─> ring slot ─> parse inner destination ─> peer table
//	          ─> encapsulate in place ─> batch ─> underlay port
//	ingress:  underlay port ─> ring slot ─> outer source ─> decapsulate in place
//	          ─> inner source and destination ─> batch ─> inner port
//
// Files, in the order in which a packet meets them (docs/architecture.md follows one packet):
//
//   - worker.go: a worker reads a batch, decides about each packet and writes it.
//   - Package port: a Port reads packets into the worker's Ring.
//   - egress.go (decideOut), ingress.go (decideIn) and vtep.go: decisions, without I/O. They use table.go,
//     reach.go and package pathmtu for what is known of the peer. podpackets.go routes for pods. byhost.go
//     and package natflow find replies that the host's NAT must translate back.
//   - deliver.go: carries out the decision. It queues, segments or fragments the packet and counts it.
//     icmp.go sends ICMP errors to senders, and pathprobe.go answers probes.
//   - Package port: a Port sends the packets.
//
// The other files:
//
//   - engine.go, portset.go, pod.go: attached ports, workers and the counters of pods.
//   - poller_linux.go, linger_linux.go: waiting for packets. pause.go stops the workers.
//   - spread.go: how many workers share a port.
//   - fairness.go and package fair: keep one peer from filling a shared receive queue.
//   - runcheck.go: probes whether runs of datagrams arrive. unreachable.go: ICMP errors about a peer.
//   - capture.go, capturehook.go: copy packets for a reader. counters.go: counters.
//
// A few workers each own a Ring and poll many ports: the host's TUN, pods' TUNs and the underlay sockets. A
// worker runs a batch to completion (read, decide, write) before it reads again. No packet is handed from one
// goroutine to another, and a lone packet leaves at once. Ports can be attached and detached while packets
// flow. Workers use a Table, an immutable snapshot that Engine.Swap replaces.
//
// The path of a packet does not allocate, lock or log, except on path portable, where the libraries allocate
// and lock.
package tunnel
