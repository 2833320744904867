// Package bench measures the data plane, from a copy of memory up to hosts whose
// pods talk. The rungs of the ladder stand in one run, so that a figure can be
// read as a ratio to the rung below it: absolute figures differ from machine to
// machine and from minute to minute.
//
//	go test -run '^$' -bench . ./bench
//	go test -run '^$' -bench 'Overlay$' ./bench      pods, over the kernel and over weft
//	make bench-guard                                 hot functions against testdata/baseline.txt
//
// BenchmarkOverlay builds its labs itself and takes about three minutes; WEFT_OVERLAY
// has its settings (overlay.ParseConfig). An ordinary user's runs in namespaces of its own.
// Where it cannot run, it fails if the pattern names it ("Overlay"); as one of all it says
// NOT MEASURED with the reason, and passes.
//
// Package overlay takes turns between the ways of carrying packets, package load makes the
// traffic, package costs compares with the baseline.
package bench
