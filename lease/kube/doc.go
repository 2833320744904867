// Package kube keeps leases in the Kubernetes API: a node's subnets are the podCIDRs of its
// Node object, and how it is reached stands in the object's annotations, which are flannel's
// to the letter, so that nodes of both kinds share a cluster.
package kube
