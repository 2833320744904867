// Package hostrules keeps the firewall rules that the overlay needs on this host. They say
// what is masqueraded, what is forwarded, and who may send to the overlay's port.
//
//	config, flags ─┐
//	lease.Set ─────┴─ desired (pure) ──> Rules of each family
//	                                       ├── nftables: tables flannel-ipv4 and flannel-ipv6, by netlink
//	                                       ├── iptables, nft flavour      by iptables-restore
//	                                       └── iptables, legacy flavour   by iptables-restore
//	nftables notification, --iptables-resync ──> compare (read only) ──> the same again
//
// Each of the three firewalls always has a desired state; for one that is not in use it is
// empty. So the rules that an earlier run, another configuration or flannel left there go,
// once ours are in place where they belong. Each table is changed in one transaction, so that
// there is no moment with half of the rules; all of iptables' are one iptables-restore.
//
// What is in the kernel is compared with what is wanted, at the start too: rules that are as they should be are left, with their
// handles and counters, whichever process has made them. A change touches only what differs: single rules and elements of sets in
// nftables, whole chains in iptables. The kernel and iptables-save print rules otherwise than they were written, so both
// are brought into one form before they are compared (nfform_linux.go, sameRule).
//
// # The rules
//
// N is the overlay's network and S this node's subnet. The rules stand in this order, are the
// same for both families, and have the same effect in nftables and in iptables:
//
//	masquerade (--ip-masq)    mark 0x4000/0x4000, kube-proxy's own     return
//	                          S → N, N → S, not N → S                  return
//	                          to a Backend.NoMasquerade network        return
//	                          N → not multicast, not N → N             masquerade
//	forward                   from N, to N                             accept
//	(--iptables-forward-rules)
//	overlay port              N → this host, UDP to the overlay's port drop
//	                          N → not N, forwarded, the same           drop
//	                          not from a peer, to the kernel's VXLAN   drop
//	                          → this host, not by the underlay's side  drop
//	                          → a peer, forwarded, the same            drop
//	sealed (Rules.Seal)       in or out by the devices that encrypt    return
//	                          by the underlay, N → or → N, in plain    drop, but for peers that do so
//	                          by any other link, N but not S           drop
//
// Pods may not use the overlay's port, since every node accepts what comes from a peer's
// address, and a pod's datagram could have a node's address: because it was masqueraded, or
// because the pod wrote it there (CAP_NET_RAW). Therefore the last two rules look at the link by
// which a datagram came in, and not at its address. The links of the underlay's side are the
// underlay's own, the loopback, the Ethernet, VLAN and bond devices of the host, and those to
// which the host's own routes to a peer, or its default routes, lead; a change of those routes
// takes effect within half a minute. A datagram that is forwarded to somebody who is no peer
// passes, since another overlay may use the port there; it does not if the data plane is in user
// space and there are more than 256 peers. Pods that are bridged to the underlay itself count as
// the underlay's side: no rule here tells them from nodes.
//
// # What is ours
//
// Tables, chains and comments are flannel's where flannel has them, each comment with
// "weft" in it; ownsChain has the names of the chains about the overlay's port, which are in mangle.
// While weftd runs, a chain of exactly these names, in its table, is ours as a whole. In the chains
// of the host only rules that lead to ours are touched. The rules stay when weftd ends, as
// flannel's do, so that pods keep their connections. "weft cleanup" (Remove) removes those that
// have one of our comments, and no others, since a flannel may have come after us.
//
// # How drift is noticed
//
// The kernel sends a notification of every change to nftables, and so to iptables in its nft
// flavour. It sends none about the legacy flavour, which is therefore read every
// --iptables-resync, with getsockopt, without the xtables lock and without a process. The
// command iptables runs only when something has to change.
//
// Everything here works in the network namespace of the calling thread.
package hostrules
