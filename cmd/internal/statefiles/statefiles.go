// Package statefiles names the files that weftd keeps in its state directory, --cache-dir, for those who
// look for them there. Whoever writes a file names it.
package statefiles

import (
	"weft/lease"
	"weft/routing"
)

// KubeNode has what a start with Kubernetes knows of its own Node. Only there is one.
const KubeNode = "kube-node.json"

// Names are all files, those of every store and backend.
func Names() []string {
	return []string{lease.CacheFile, routing.ExtensionFile, routing.ExtensionFile + ".new", lease.NodeFile, lease.StateFile, KubeNode}
}
