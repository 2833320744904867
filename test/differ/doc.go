// Package differ gives the same packets, valid and mutated, to weft's user-space data plane and to another judge, and
// compares what comes out byte for byte. In format vxlan the judge is the kernel's vxlan device. In format ip it is a
// model of what weft does, written from the documents. explain_test.go and model_test.go say for exactly which packets
// weft means to differ from the kernel, or from flannel, and docs/deviations.md says why.
package differ
