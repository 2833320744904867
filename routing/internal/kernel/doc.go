// Package kernel is the edge to the kernel of one network namespace: links, addresses, routes, neighbours,
// forwarding entries, settings and filters, what it says about them unasked (Subscribe), and the plan that
// compares what there is with what there should be (Plan, Apply).
//
// It decides nothing about peers. What it plans is pure, what it changes it tries wholly and joins the errors.
package kernel
