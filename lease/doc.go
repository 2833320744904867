// Package lease has the words of a network of leases: subnets and their keys, records with their values, the
// network configuration, a node's identity, the state of a lease, and the Store where records live. The
// formats are flannel's, so that nodes of both kinds share a network.
//
//   - types.go, key.go, record.go, name.go and owner.go: what a record is, and whose.
//   - config.go, configparse.go, configrules.go, allocrange.go, fit.go and use.go: the network configuration.
//   - store.go, message.go, reject.go and status.go: what a store says, and what is said of it.
//   - identity.go and statedir.go: who this node is.
//
// Package belief decides what of a store's snapshot is believed, and which peers that gives. Package keeper
// is the life of one node's lease: it allocates a subnet, renews its record and settles contests. Packages
// etcd and leasetest are Stores. In Kubernetes others decide who owns what: package kube has a life of its
// own, on the same belief and on keeper.Base.
package lease
