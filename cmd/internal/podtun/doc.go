// Package podtun makes the interface of a pod that is attached directly: a TUN in the pod's network
// namespace, with its addresses and routes, whose descriptor weftd's data plane gets.
//
// A TUN's descriptor keeps the namespace alive in which it was opened. So the TUN is opened in the caller's
// namespace, under a name for the moment, and moved: then the device goes with the pod's namespace, and
// whoever reads from the descriptor learns it. The TUN is persistent: if weftd goes, the pod keeps interface,
// addresses and connections until the descriptor's next holder reads on.
//
// Each address is on the TUN with its full length, and routes have no gateway in IPv4. In IPv6 they have
// Gateway6, which nobody has: without one the kernel would make a neighbour entry for every destination, of
// which it keeps 1,024 for all namespaces together.
package podtun
