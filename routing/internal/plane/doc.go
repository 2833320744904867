// Package plane is the data plane's side of routing: it gives a tunnel.Engine its ports and keeps what these
// have in the kernel.
//
//	TUN                      EnsureTUN chooses and opens it, and opens it again when it is gone
//	underlay's sockets       Listen binds one for each family, on the path that the link allows
//	next hops                UpdateNextHops reads routes and neighbours for the frames of path raw
//	who does not answer      Refuse has packets to silent neighbours dropped and counted
//	peers                    Publish swaps in their table
//
// It decides nothing about peers and makes no address or route: what is wanted on the TUN is the
// controller's, in package routing, which calls all of this and has the lock.
package plane
