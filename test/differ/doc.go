// Package differ holds tests that give the same packets, valid and mutated, to weft's user-space data plane and to another
// implementation, and compare what comes out byte for byte. In format vxlan the other is the kernel's vxlan device, in format ip
// a model of flannel's proxy, written from its documented behaviour. Where weft means to differ, explain_test.go and model_test.go say
// so for exactly the packets concerned, and docs/deviations.md says why.
package differ
