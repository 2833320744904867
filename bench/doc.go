// Package bench measures the data plane, from a copy of memory up to hosts whose
// pods talk. The rungs of the ladder stand in one run, so that a figure can be
// read as a ratio to the rung below it: absolute figures differ from machine to
// machine and from minute to minute.
//
//	go test -run '^$' -bench . ./bench
//	go test -run '^$' -bench 'Overlay$' ./bench      pods, over the kernel and over weft
//	make bench-guard                                 hot functions against testdata/baseline.txt
//
// BenchmarkOverlay builds its labs itself and takes about four minutes; WEFT_OVERLAY
// has its settings (overlay.ParseConfig). An ordinary user's runs in namespaces of its own.
// Where it cannot run, it fails if the pattern names it ("Overlay"); as one of all it says
// NOT MEASURED with the reason, and passes. The same is in the command weft bench.
//
//	load       traffic: TCP streams, datagrams, ping-pong; searches and processor time
//	histogram  round trips, counted
//	plan       what is measured, how long, in which order
//	overlay    the rungs: labs on this machine, in turns
//	remote     the two ends on two machines
//	machine    where it is measured, and what else ran there
//	report     the result: JSON, table, lines for benchstat, an HTML page
//	costs      hot functions against a baseline
package bench
