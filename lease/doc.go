// Package lease decides who owns which subnet. It holds the network
// configuration, the records of the store and their checks, the allocation of a
// subnet, and the loop that keeps a node's own lease alive.
//
//	store ──Watch──> Snapshot ──Believe──> Memory ──Check──> Set ──> routing
//	                     │                    │
//	                     │                    └── Cache: the last good state on disk
//	                     └── judge ──> Plan ──Put (compare-and-swap)──> store
//
// Everything but Keeper, Cache and identity.go is a pure function. A Store is where
// records live: lease/etcd has one, lease/leasetest one in memory. In Kubernetes others decide
// who owns what: lease/kube has a Keeper of its own, of the same parts. The formats are
// flannel's, so that nodes of both kinds share a network.
package lease
