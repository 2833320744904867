// Package ec2routes programs the route tables of one VPC of Amazon EC2. A tag on route tables and instances
// marks weft's own, since routes have no tags: a route is ours if it is in a table with the tag, lies in one
// of the overlay's networks, was made by CreateRoute, and leads to a network interface of an instance with
// the tag, or to one that is gone. Each table with the tag has every route.
//
// A newcomer reads open.go (region, VPC and credentials), read.go (tables and instances), program.go (a
// round) and change.go (calls, and what their errors mean).
package ec2routes
