// Package alitest is as much of Alibaba Cloud's APIs of VPC and ECS, and of an instance's metadata service,
// as routes take: requests of RPC style, written from the published API descriptions, with the faults that a
// cloud has. It is no proof that Alibaba's does the same.
package alitest
