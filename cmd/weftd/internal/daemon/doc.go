// Package daemon is what weftd does between its flags and its packages:
//
//	cache ─> underlay ─> backend ─> forwarding ─> source ─> lease
//	  └── none: source ─> underlay ─> backend ─> lease ─> forwarding
//
// The source is etcd or the Kubernetes API. With a cached set, packets flow before
// it is asked; without one, it comes first: etcd has the network configuration, and
// the API server says which Node we are. From then on
//
//	source ──Watch──> member ──complete set──> routing.Backend
//	                     │           └───────> subnet file, readiness, systemd
//	                     └ lease.Keeper or kube.Manager
//
// A run has one generation for each footing: that of the cache is replaced by a
// second one if it turns out to be outdated (serve.go).
package daemon
