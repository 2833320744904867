// Package load makes traffic between two hosts of a lab and measures it: bytes over
// TCP, small datagrams at the highest rate that loses next to nothing, and the round
// trips of a ping-pong. It measures the path, so its own share is kept small: blocking
// sockets, one thread for each end, system calls on memory that is allocated before,
// nothing between them.
//
//	tcp       streams of large writes; what is counted arrives after a warm-up
//	traffic   datagrams: one flow of one size, or many flows of mixed sizes
//	sender, receiver, flow   datagrams at a given rate, at one end or at both
//	search    the highest rate that loses no more than so much
//	pingpong  one small TCP segment there and back, again and again
//	cpu       what all of that cost: the whole machine's time, and some processes'
//
// Both ends may run in this process. It should have more Ps than there are ends (see
// runtime.GOMAXPROCS), or the ends wait for each other in Go's scheduler.
package load
