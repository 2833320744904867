// Package aliroutes programs the route tables of one VPC of Alibaba Cloud. A route is ours if it is in a
// table with our tag, has our description, lies in one of the overlay's networks and leads to an instance.
// Instances that may be next hops have the tag too. Each table with the tag has every route.
//
// The API is spoken to by Alibaba's client for all of its APIs, which signs; what one of them answers is read
// here (call.go). Credentials are its providers', but for those of the instance's role, which come from the
// metadata service with a session and past any proxy (metadata.go).
//
// A newcomer reads open.go (region, VPC and credentials), read.go (tables and instances), program.go (a
// round) and change.go (calls, and what their errors mean).
package aliroutes
