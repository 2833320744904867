// Package presence finds out whether somebody else is where this node is about to be: another weftd that
// serves the network on this host, a process that has the overlay's port, and a node elsewhere that still
// lives.
//
//	HostClaim   holds a name of the network namespace for each network and port that this process serves
//	PortFree    tries to bind the overlay's port
//	Alive       asks a node's kernel over the underlay
//
// It decides nothing: the daemon waits or gives up by what it says, and the lease's life by what Alive says.
package presence
