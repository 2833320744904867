// Package computetest is as much of Google Compute Engine, and of an instance's metadata service, as routes
// take: JSON over HTTP, written from the published API description, with the faults that a cloud has. It is
// no proof that Google's does the same.
package computetest
