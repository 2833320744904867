// Package kube keeps leases in the Kubernetes API: a node's subnets are the podCIDRs of its
// Node object, and how it is reached stands in the object's annotations, which are flannel's
// to the letter, so that nodes of both kinds share a cluster.
//
//	                  events: news, Found, Patched, Probed, Saved             effects
//	API server, clock, disk ──────> Life.Step ──────> FindNode, WatchNodes, PatchNode, ProbeServer, Tell,
//	                                                  AskUnderlay, Publish, SaveCache, Log, Wait
//
//	turn: observe   all Nodes ──Believe──> Memory            when changes have settled (observe.go, claim.go)
//	      judge     our Node ──> state, or another machine's (observe.go, namesake.go)
//	      publish   Memory ──> Set                           (observe.go)
//	      save      the cache                                (life.go)
//	      write     annotations, condition, Events           (write.go, problem.go, condition.go)
//	      ask       the API server for a sign of life        (server.go)
//
// A Life has no clock and does no I/O (life.go). nodeWatch lists and watches into its table of Nodes
// (nodes.go, watch.go). A Manager is a Life with an API server, a clock and a disk (run.go). An eventWriter
// writes Events (eventwriter.go).
package kube
