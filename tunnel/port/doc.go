// Package port moves bytes: it reads packets into a worker's memory and sends them. It decides about none.
//
//   - packet.go is a Packet with its description, ring.go the memory of a batch, and port.go what a Port is.
//   - portable_linux.go is path portable, both ends, on top of udp_linux.go.
//   - tun_linux.go, tunqueues_linux.go and tunoffload_linux.go read inner packets from a TUN, and
//     podtun_linux.go makes a port of a pod's. merge_linux.go makes superpackets of what goes into a TUN.
//   - ipip_linux.go (format ipip), sockets_linux.go (path socket) and rawread_linux.go (path raw) read
//     datagrams; udpspread_linux.go has several sockets share them, rawfilter.go says which frames are ours,
//     and fairfilter_linux.go lets only a share of a peer's in.
//   - udpoffload_linux.go and raw_linux.go are ports of the underlay. runwriter_linux.go and sendrun_linux.go
//     make one send of many packets for them; rawsend_linux.go, frames_linux.go and tap_linux.go, or
//     sockets_linux.go, send it. outlet.go says whether a superpacket leaves whole.
//   - errorqueue_linux.go and senderror.go read what ICMP says of datagrams that were sent.
//   - kept.go, kepttun_linux.go, keptudp_linux.go and keptraw_linux.go make a port again of descriptors that
//     outlived it.
//   - recv.go has the forms of datagram that a receiver takes, drops.go the reasons for a drop, offload.go
//     the offloads and their state, events.go the names of events, and syscall_linux.go the system calls.
//
// Nothing allocates, takes a lock or logs for a packet; but on path portable the libraries do the first two.
package port
