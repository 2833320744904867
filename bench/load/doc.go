// Package load makes traffic between two hosts and measures it: bytes over
// TCP, small datagrams at the highest rate that loses next to nothing, and the round
// trips of a ping-pong. The path is what is to be measured, so the generators take as little
// time as they can: they use blocking sockets, one thread for each end, memory that is allocated
// beforehand, and do nothing between the system calls.
//
//	tcp       streams of large writes
//	traffic   what datagrams to send: one flow of one size, or many flows of mixed sizes
//	sender, receiver   send datagrams at a given rate, and count those that arrive
//	search    finds the highest rate that loses no more than a given share
//	pingpong  sends a small TCP segment there and back, again and again
//	cpu       reads the processor time of the whole machine, and of some processes
//
// Both ends may run in this process. GOMAXPROCS should then be larger than the number of ends,
// or they wait for each other in Go's scheduler.
package load
