// Package differ gives the same packets, valid and mutated, to weft's user-space data plane in format vxlan
// and to the kernel's vxlan device, and compares what comes out byte for byte. explain_test.go says for
// exactly which packets weft means to differ from the kernel, and docs/deviations.md says why.
package differ
