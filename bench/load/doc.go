// Package load makes traffic between two hosts of a lab and measures it: bytes over
// TCP, small datagrams at the highest rate that loses next to nothing, and the round
// trips of a ping-pong. It measures the path, so its own share is kept small: blocking
// sockets, one thread for each end, system calls on memory that is allocated before,
// nothing between them.
//
//	tcp       streams of large writes; what is counted arrives after a warm-up
//	packets   one flow of 64-byte datagrams at a given rate, and a search for the highest
//	pingpong  one small TCP segment there and back, again and again
//	cpu       what all of that cost: the whole machine's time, and some processes'
//
// Both ends run in this process. It should have more Ps than there are ends (see
// runtime.GOMAXPROCS), or the ends wait for each other in Go's scheduler.
package load
