// Package events keeps what a node has seen and done: a history of bounded size in weftd's state directory,
// which weftd writes and weft events reads, also when weftd does not run.
package events
