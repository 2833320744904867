// Package kernel is the edge to the kernel of one network namespace. It reads and changes links, addresses,
// routes, neighbours, forwarding entries, settings and filters, and receives the kernel's notifications about
// them (Subscribe). Plan compares what there is with what there should be, and Apply makes the difference.
//
// Nothing here decides about peers. Plans are pure. Apply tries every change, whatever failed before, and
// joins the errors.
package kernel
