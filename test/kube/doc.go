// Package kube runs weft in a real Kubernetes cluster on one machine: etcd, kube-apiserver and
// kube-controller-manager as processes of their own, nodes in network namespaces with a weftd each,
// pods attached by weft-cni and Debian's plugins.
//
//	pod ─veth─ cni0 ─ node "a" (weftd --kube-subnet-mgr) eth0 ─┐
//	pod ─veth─ cni0 ─ node "b" (weftd --kube-subnet-mgr) eth0 ─┼─ wire0
//	            etcd, kube-apiserver, kube-controller-manager ─┘
//
// There is no kubelet: a Node object is made by the test, pods are containers without processes, and a
// node of flannel's is a Node object with its annotations beside a vxlan device made by hand. Everything
// between weftd and the API server is real: authentication, RBAC, patches of the status, watches and
// their ends, and podCIDRs from the controller.
//
// The control plane is one program, cmd/controlplane, which make test-kube builds into bin; it takes
// minutes the first time. WEFT_LONG=1 makes the longest outage five minutes, WEFT_NODES=5000 the crowd of
// TestScale that large.
//
// Nothing here has a name outside the test's process but that and temporary
// files, as in package lab, on which this stands.
package kube
