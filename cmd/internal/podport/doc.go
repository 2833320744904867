// Package podport has what a program needs to attach a pod directly: its interface is a TUN whose other end
// is a port of weftd's data plane, with no bridge between. The package has the requests with their checks, a
// client of the control socket for them, and what a descriptor has to be.
//
//	POST /v1/pods/attach   Request, then a descriptor → Answer
//	POST /v1/pods/detach   Key → Pod
//	GET  /v1/pods          → Pods
//
// An attach is an HTTP request that asks for an upgrade to the protocol Upgrade. weftd answers 101 if the
// request is one that it could fulfil. Then the client sends one byte with the TUN's descriptor (SCM_RIGHTS),
// and weftd answers with an Answer and closes the connection. To attach what is attached already replaces it,
// so that a program may do it again at any time.
//
// Of a pod's namespace weftd gets nothing but the descriptor, and a descriptor of a socket in the namespace
// would keep the namespace alive for ever. So would a TUN's descriptor that was opened there. The client
// opens the TUN in another namespace and moves the device: then the device goes with the pod's namespace, the
// read fails, and weftd forgets the pod.
package podport
