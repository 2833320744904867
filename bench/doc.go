// Package bench measures the data plane, from a copy of memory up to pods on two nodes
// that talk to each other. All rungs of the ladder are measured in one run, so that a figure
// can be read as a ratio to the rung below it: absolute figures differ from machine to
// machine and from minute to minute.
//
//	go test -run '^$' -bench . ./bench
//	weft bench                                       pods, over the kernel and over weft
//	make bench-guard                                 hot functions against another commit, by benchstat
//
// The command weft bench is made of the packages below.
//
//	load       makes traffic: TCP streams, datagrams, ping-pong; searches for rates, reads processor time
//	plan       says what is measured, how long and in which order
//	overlay    measures the rungs in turns, in labs on this machine
//	ends       measures between two ends: namespaces of a lab, or machines
//	machine    describes the machine, and what else ran there
//	report     writes the result: JSON, tables, lines for benchstat, an HTML page
package bench
