// Package overlay compares ways of carrying packets between pods on two nodes: the
// kernel's own, set up by hand, and weftd's paths. Each way is a rung, with a lab of its
// own: two nodes, one pod each behind a bridge, one veth pair of 1500 bytes between.
//
// All labs are up at the same time, and all but the one that is measured are idle. The
// rungs take turns, round after round, so that what changes with the minute changes for
// all; a ratio is taken within a round, and what is reported is the median of those.
// Nothing here is a prediction for a physical network: both pods and both nodes share
// this machine's CPUs, so a throughput is a cost turned round.
package overlay
