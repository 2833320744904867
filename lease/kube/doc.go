// Package kube keeps leases in the Kubernetes API: a node's subnets are the podCIDRs of its
// Node object, and how it is reached stands in the object's annotations, which are flannel's
// to the letter, so that nodes of both kinds share a cluster.
//
//	                  events: news, found, patched, probed, nodesRead, Saved             effects
//	API server, clock, disk ──────> core.step ──────> findNode, watchNodes, readNodes, patchNode, probeServer,
//	                                                  tell, AskUnderlay, Publish, SaveCache, Log, Wait
//
//	turn: observe   all Nodes ──Believe──> Memory            when changes have settled (observe.go, claim.go)
//	      judge     our Node ──> state, or another machine's (observe.go, namesake.go)
//	      publish   Memory ──> Set                           (observe.go)
//	      save      the cache                                (core.go)
//	      write     annotations, condition, Events           (write.go, problem.go, condition.go)
//	      ask       the API server for a sign of life        (server.go)
//
// The core has no clock and does no I/O. A Life is a core with a table of Nodes, into which nodeWatch lists
// and watches (life.go, nodes.go, watch.go), and a Manager is a Life with an API server, a clock and a disk
// (run.go); a eventWriter writes Events (events.go).
package kube
