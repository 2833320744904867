// Package daemon starts and joins the other packages, as weftd's flags say. This is the order
// in which a start comes by its parts, with a cached set and without one:
//
//	cache ─> underlay ─> backend ─> forwarding ─> source ─> lease
//	  └── none: source ─> underlay ─> backend ─> lease ─> forwarding
//
// The source is etcd or the Kubernetes API. With a cached set, packets flow before
// weftd asks it. Without one, weftd asks it first: etcd has the network configuration,
// and the API server says which Node is ours. From then on
//
//	source ──Watch──> member ──complete set──> routing.Backend
//	                     │           └───────> subnet file, readiness, systemd
//	                     └ keeper.Keeper or kube.Manager
//
// A Network is what weftd has to know of its network and its node to carry packets
// (source.go). An overlay is everything that serves one network: backend, rules,
// and the member, which keeps this node's lease (serve.go). An overlay that began with
// the cached network is replaced by another if that turns out to be outdated, or
// if the source has another network configuration to begin with (choice, live.go).
package daemon
