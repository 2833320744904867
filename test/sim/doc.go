// Package sim runs a whole cluster in one goroutine, from one seed: machines with the product's own lease
// core, a model of etcd that loses, lags, goes back and lies, links that are cut, and clocks that differ,
// jump and stand still. Between the machines packets move through the product's own data plane, over wires in
// memory.
//
// A seed makes a Script, which is data: what happens to the cluster, and when. Run plays a script, and checks
// after each step what must hold whatever happens. The same script gives the same history, byte for byte, so
// that a script that fails can be shrunk to the few things that matter (Shrink).
//
// A failing seed prints the rule, its script, the shrunk script and the history: an event with the effects
// that the core asked for, or a change of the store, a line. A script that found a fault of the product stays
// in testdata.
//
// A new kind of fault needs a Kind in script.go, its effect in happen (cluster.go) or operate (store.go),
// what it excuses (disturb for one machine, shake for the store), and what ends it (heal).
package sim
