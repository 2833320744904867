// Package port reads packets into a worker's memory and sends them. It makes no decision about a packet.
//
//   - packet.go: a Packet and its description. ring.go: the memory of a batch. port.go: the interface Port.
//   - portable_linux.go: path portable, both ends, on top of udp_linux.go.
//   - tun_linux.go, tunqueues_linux.go, tunoffload_linux.go: the host's TUN. podtun_linux.go: a pod's TUN.
//     merge_linux.go coalesces packets that are written to a TUN.
//   - ipip_linux.go (format ipip), sockets_linux.go (path socket), rawread_linux.go (path raw): reading
//     datagrams. udpspread_linux.go spreads them over several sockets, rawfilter.go selects the tunnel's
//     frames, and fairfilter_linux.go throttles sources.
//   - udpoffload_linux.go and raw_linux.go: ports of the underlay. runwriter_linux.go and sendrun_linux.go
//     gather many packets into one send. rawsend_linux.go, frames_linux.go and tap_linux.go, or
//     sockets_linux.go, send it. outlet.go: whether superpackets leave whole.
//   - errorqueue_linux.go and senderror.go: ICMP errors about sent datagrams.
//   - kept.go, kepttun_linux.go, keptudp_linux.go, keptraw_linux.go: rebuilding a port from descriptors of an
//     earlier engine or process.
//   - recv.go: what a receiver can parse. drops.go: drop reasons. offload.go: offloads and their states.
//     events.go: names of events. syscall_linux.go: system calls.
//
// Nothing allocates, locks or logs per packet, except on path portable, where the libraries allocate and
// lock.
package port
