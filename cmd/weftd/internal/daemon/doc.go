// Package daemon is what weftd does between its flags and its packages:
//
//	identity ─> cache ─> underlay ─> backend ─> forwarding ─> store ─> lease
//	                └── none: store ─> config ─> underlay ─> backend ─> lease ─> forwarding
//
// With a cached set, packets flow before the store is asked; without one, the
// store comes first. From then on
//
//	store ──Watch──> lease.Keeper ──complete set──> routing.Backend
//	                                     └─────────> subnet file, readiness, systemd
//
// A run has one generation for each network configuration: a cached one that
// turns out to be outdated is replaced by a second (serve.go).
package daemon
