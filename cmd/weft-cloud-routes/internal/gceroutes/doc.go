// Package gceroutes programs the routes of one VPC network of Google Cloud. A route is ours if its name
// begins with our prefix, its description is ours, it lies in one of the overlay's networks and leads to an
// instance. Instances that may be next hops have a label.
//
// The API is spoken to by hand (call.go): it is five calls of JSON over HTTP, and Google's client for them is
// more than half a gigabyte of source. Credentials are golang.org/x/oauth2's to find. Changes are operations
// that take seconds, so a round begins all of them, and then waits for all (program.go).
package gceroutes
