// Package costs notices when a hot function has become dearer. It takes what benchmarks
// cost as a ratio to a reference that is measured beside them, since a ratio moves less
// from minute to minute than nanoseconds do, and compares that with what was committed.
//
//	Measure   runs the benchmarks of some packages a few times, the reference between them
//	Parse     reads what they print
//	Baseline  is the committed file
//	Compare   says what is dearer than it may be
//
// A ratio still depends on the processor: a baseline from another model is a hint only.
package costs
