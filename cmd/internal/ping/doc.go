// Package ping asks the way to a node, or to a pod, layer by layer: the node's host on the underlay, the
// overlay's port there, its data plane, its weftd, the bridge of its pods, and a pod.
//
// Of each layer it learns what was lost, the round trip and the largest packet that passes, and at the first
// one that is broken it names the causes, the likeliest first, each with the command that tells it from the
// others. It says which layers it cannot tell apart.
//
// The files, in the order in which to read them: report.go has what is found, route.go what is asked,
// known.go what that is made from, run.go how the layers are asked at once, mtu.go the search for the largest
// packet, judge.go what the answers mean; package diagnose names the causes. asker_linux.go and the sockets
// beside it are the edge; all else is pure but for run.go's clock.
package ping
