// Package overlay compares arrangements by which packets get from a pod on one node to a pod on
// another: the kernel's own, set up by hand, weftd's paths, and wireguard-go. Each is a rung with a
// lab of its own: two nodes with one pod each behind a bridge, joined by one veth pair with an MTU of
// 1500 bytes. For comparison, rung veth is a bare veth pair between two namespaces.
//
// All labs are up at the same time, and all but the one that is measured are idle. The
// rungs take turns, round after round, so that a machine that becomes slower or faster does so for
// all of them; a ratio is taken within a round, and the median of the rounds' ratios is reported.
// Nothing here predicts a physical network: both pods and both nodes share this machine's CPUs,
// so a throughput only says how little processor time a byte takes.
package overlay
