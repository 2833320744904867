// Package kube runs weft in a real Kubernetes cluster on one machine: etcd, kube-apiserver and
// kube-controller-manager as processes of their own, nodes in network namespaces with a weftd each,
// pods attached by weft-cni and Debian's plugins.
//
//	pod ─veth─ cni0 ─ node "a" (weftd --kube-subnet-mgr) eth0 ─┐
//	pod ─veth─ cni0 ─ node "b" (weftd --kube-subnet-mgr) eth0 ─┼─ wire0
//	            etcd, kube-apiserver, kube-controller-manager ─┘
//
// There is no kubelet: the test makes the Node objects, pods are network namespaces without processes
// (attached directly in the test of Services, whose rules kube-proxy makes). A node of flannel's runs a real
// flanneld. Everything between weftd and the API server is real: authentication, RBAC, patches of the status,
// watches and their ends, and podCIDRs from the controller.
//
// The control plane is one program, cmd/controlplane, which make test-kube builds into bin. That takes
// minutes the first time. With WEFT_LONG=1 the longest outage lasts five minutes.
//
// As in package lab, which this package uses, nothing has a name outside the test's process, except the
// programs in bin and temporary files.
package kube
