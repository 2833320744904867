// Package ec2test is as much of Amazon EC2, and of an instance's metadata service, as routes take: its wire
// protocol (EC2 Query and XML, IMDSv2), written from the published API model, with the faults that a cloud
// has. It is no proof that Amazon's does the same.
package ec2test
