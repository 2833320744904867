// Package lab builds a cluster on one machine: nodes and pods in network namespaces,
// a weftd in each node, a store, and the wires between them. The command `weft lab`, the
// benchmarks and the scenario tests use it.
//
//	pod ─veth─ cni0 ┐                                        ┌ cni0 ─veth─ pod
//	pod ─veth─ cni0 ┴ node1 (weftd) eth0 ─┐   ┌─ eth0 node2 ─┴ cni0 ─veth─ pod
//	                                   wire0 (bridge, in the namespace "wire")
//	                                      └─ eth0 store (etcd, when it has its own host)
//
// With Spec.Direct two nodes share one veth pair and there is no bridge. Spec.Wire says which
// superpackets cross from node to node whole, and so how much the devices are like network cards.
//
//	underlay  198.18.0.N/16 and fd18::N/64 for node N; the wire is .255.254, the store .255.253
//	overlay   what the network config says; each node's bridge and pods use its subnet.env
//
// Nothing has a name outside this process: its threads and descriptors hold the namespaces,
// and the processes in them die with the thread that started them. A lab therefore
// leaves nothing behind but its state directory, even after kill -9.
//
// Package netns makes and holds one namespace; package probe sends packets between pods and counts
// the packets that arrive; package holder keeps a lab for `weft lab exec` and runs one without root; package
// session lets ordinary users work on a lab's hosts.
package lab
