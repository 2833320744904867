// Package statefiles lists the names of the files that weftd keeps in its state directory, --cache-dir, for
// commands that look for them there. The name of each file is defined in the package that writes it.
package statefiles

import (
	"weft/cmd/internal/events"
	"weft/lease"
	"weft/lease/belief"
	"weft/routing"
)

// KubeNode holds what weftd knew of its own Node, for its next start with Kubernetes. With etcd there is no
// such file.
const KubeNode = "kube-node.json"

// Pods are the pods that were attached directly, with what weftd has to remember of them.
const Pods = "pods.json"

// Namespace names the process that keeps the network namespace which a weftd without root made.
const Namespace = "namespace"

// Names are all files, those of every store and backend.
func Names() []string {
	return []string{
		belief.CacheFile, lease.NodeFile, lease.StateFile, KubeNode, routing.ExtensionFile, routing.HookFile,
		routing.ForwardingFile,
		events.File, events.Former, Pods, Namespace,
	}
}
