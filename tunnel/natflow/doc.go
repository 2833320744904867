// Package natflow remembers the flows whose destination the host's NAT has translated, so that their replies
// go back through the host. It does no I/O.
//
//   - flow.go finds the flow of a packet.
//   - table.go keeps flows at least as long as the host's connection tracking does.
//   - translated.go imports flows from the host's connection tracking.
package natflow
