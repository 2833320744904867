// Package tunnel is the user-space data plane: it carries inner IP packets
// between this node's ports and the other nodes.
//
//	egress:   inner port ─> ring slot ─> parse inner destination ─> peer table
//	          ─> encapsulate in place ─> batch ─> underlay port
//	ingress:  underlay port ─> ring slot ─> outer source ─> decapsulate in place
//	          ─> inner source and destination ─> batch ─> inner port
//
// The files stand in the order in which a packet meets them: port.go and ring.go
// (where it enters), worker.go (who moves it), egress.go and ingress.go (what
// is decided about it), table.go and way.go (who is where, and whether to be reached), icmp.go and pathmtu.go (what
// the sender is told; pathprobe.go finds out whether it is true), drops.go (why it went no further). The edges to the
// kernel are tun_linux.go, with tunoffload_linux.go and merge_linux.go for superpackets, and for
// the underlay udp_linux.go (path portable), udpoffload_linux.go (socket) and raw_linux.go
// (raw); runwriter_linux.go and sendrun_linux.go make one send of many packets for the last two.
// fairshare.go, fairkeep.go and fairfilter_linux.go keep one peer from filling a receive queue for all.
// How workers wait is in poller_linux.go and linger_linux.go, how several share a port
// in spread.go.
//
// The unit is a Port: the host's TUN, a pod's TUN, or the underlay socket. A
// few workers each own a Ring and poll many ports; a worker runs a batch to
// completion (read, decide, write) before it reads again, so a packet is never
// handed from one goroutine to another and a lone packet leaves at once. Ports
// come and go while packets flow. What the workers consult is a Table, an
// immutable snapshot that Engine.Swap replaces.
//
// Nothing on that path allocates, takes a lock or logs.
package tunnel
