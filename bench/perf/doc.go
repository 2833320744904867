// Package perf asks the kernel's perf events what a measurement costs: which system calls the
// daemons make (calls), and which share of the processors' time goes into copies (copies).
//
// Both slow down what they look at, by a percent or a few, so a throughput is measured without
// them. Both need privileges that not every machine gives; an error says which.
package perf
