// Package costs notices when a hot function has become dearer. It compares what benchmarks cost
// with a baseline that is committed. Both are ratios to a reference that is measured beside the
// benchmarks, since a ratio changes less from minute to minute than nanoseconds do.
//
//	Measure   runs the benchmarks of some packages a few times, the reference between them
//	Parse     reads what they print
//	Baseline  is the committed file
//	Compare   says what is dearer than it may be
//
// A ratio still depends on the processor, so a baseline from another model is only a hint.
package costs
