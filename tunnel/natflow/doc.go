// Package natflow remembers the flows whose destination the host's rules have translated, so that their
// answers go back by way of the host. It does no I/O.
//
//   - flow.go reads from a packet's headers which flow it belongs to.
//   - table.go keeps the flows, each as long as the host's connection tracking does.
//   - translated.go takes over flows that the host knew before.
package natflow
