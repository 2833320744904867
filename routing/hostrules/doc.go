// Package hostrules keeps the firewall rules that the overlay needs on this host. They say what is
// masqueraded, what is forwarded, who may send to the overlay's port, and that nothing leaves in plain where
// it is to be encrypted.
//
//	config, flags ─┐
//	lease.Set ─────┴─ desired (pure) ──> familyRules
//	                   ├── all that drops ──> table inet weft              chains_linux.go, table_linux.go
//	                   └── masquerade, forward
//	                        ├── EnableNFTables ──> tables flannel-ipv4, flannel-ipv6             the same
//	                        └── iptables ──> FLANNEL-POSTRTG, FLANNEL-FWD         save.go, iptables_linux.go
//	nftables notification, --iptables-resync ──> read, and the same again            keeper_linux.go
//
// Each table is changed in one transaction, so that no packet meets half of the rules. Leftovers of earlier
// runs go once all of these stand. Peers and the links of the underlay's side are sets, which change by
// difference.
//
// # The rules
//
// N is the overlay's network and S this node's subnet. Both families have the same rules.
//
//	masquerade (--ip-masq)    mark 0x4000/0x4000, kube-proxy's own      return
//	                          S → N, N → S, not N → S                   return
//	                          N → a Backend.NoMasquerade network        return
//	                          N → not multicast, not N → N              masquerade
//	forward                   from N, to N                              accept
//	(--iptables-forward-rules)
//	overlay port              N → this host, UDP to the overlay's port  drop
//	                          N → not N, forwarded, the same            drop
//	                          not from a peer, to the kernel's VXLAN    drop
//	                          → this host, not by the underlay's side   drop
//	                          → a peer, forwarded, the same             drop
//	encrypted (Seal)          in or out by the devices that encrypt     return
//	                          by the underlay, N → or → N, in plain     drop, but for peers that do so
//	                          by any other link, N but not S            drop
//
// Pods may not use the overlay's port: every node accepts what comes from a peer's address, which a pod's
// datagram could have. Therefore the rules look at the link by which a datagram came in. The links of the
// underlay's side are the underlay's own, the loopback, the host's devices, and those to which its routes to
// a peer or its default routes lead. Pods that are bridged to the underlay itself count as its side.
//
// # Several networks on one host
//
// The networks' prefixes tell them apart. In nftables each has chains and sets that end with its label. In
// flannel's chains of iptables, which they share, each changes only rules about its own prefixes, or the
// networks that it had before. An earlier weft shared flannel's chains of nftables in the same way: what is
// another network's there stays. So does what is not ours with "weft cleanup" (Remove), which takes what has
// one of our comments; a living flannel's rules stay.
//
// Everything here works in the network namespace of the calling thread.
package hostrules
