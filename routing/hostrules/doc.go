// Package hostrules keeps the rules of the host that the overlay needs: what is
// masqueraded, what is forwarded, and who may speak on the overlay's port.
//
//	config, flags ─┐
//	lease.Set ─────┴─ desired (pure) ──> Rules of each family
//	                                       ├── nftables: tables flannel-ipv4 and flannel-ipv6, by netlink
//	                                       ├── iptables, nft flavour      by iptables-restore
//	                                       └── iptables, legacy flavour   by iptables-restore
//	nftables notification, --iptables-resync ──> compare (read only) ──> the same again
//
// All three always have their desired state; what is not in use has the empty one.
// So what an earlier run, another configuration or flannel left in one of them goes, after
// the rules are in place where they belong. Each is changed in one transaction
// for each table: there is no moment with half of the rules.
//
// # The rules
//
// N is the overlay's network and S this node's subnet, in order; the same for both
// families, and the same effect in nftables and in iptables:
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
//
// The overlay's port is kept from pods because a datagram of theirs, masqueraded
// on its way or with a node's address from the start (CAP_NET_RAW), would come from a node, and
// every node believes its peers. So the last two go by the link that a datagram came in by. The
// underlay's side is the underlay's link, the loopback, Ethernet, VLAN and bond devices of the host, and whatever
// the host's own routes to a peer, or to everywhere, lead to; a change of those routes shows within half a
// minute. What is forwarded to others than peers passes: another overlay may use the port there
// (unless the data plane is in user space and there are more than 256 peers). Pods that
// are bridged to the underlay itself are on it, and no rule here tells them from nodes.
//
// # What is ours
//
// Tables, chains and comments are flannel's where flannel has them, each comment with
// "weft" in it; the chains of the overlay port are WEFT-INPUT, WEFT-FORWARD, WEFT-PEERS, WEFT-PEERS-n and
// WEFT-STRANGERS in mangle. While weftd runs a chain of these very names, in its table, is
// ours as a whole. In chains of the host only rules that lead to those are touched.
// The rules stay when weftd ends, as flannel's do: pods go on. "weft cleanup" (Remove) takes those that have
// one of our comments, and no others, since a flannel may have come after us.
//
// # How drift is noticed
//
// The kernel tells of every change to nftables, and so of iptables in its nft
// flavour. It does not tell of the legacy flavour: that is read, with getsockopt and neither
// the xtables lock nor a process, every --iptables-resync. iptables itself runs
// only when something has to change.
//
// Everything here works in the network namespace of the calling thread.
package hostrules
