// Package holder keeps labs for the weft command. Each has a name, and is kept by a process, its
// holder, that owns its namespaces and answers on a Unix socket in the lab's state directory.
//
//	weft lab run      calls Hold in its own process
//	weft lab up       calls Launch, which starts a process that calls Hold, and returns when the lab is up
//	weft lab exec     calls Exec, which passes its own stdin, stdout and stderr through the socket
//	weft lab down     calls Down, which asks the holder to end, or removes what a dead one left
//
// If an ordinary user runs it, Hold is in a user namespace of its own: see Isolated.
//
// The state directory is $XDG_RUNTIME_DIR/weft-lab/NAME, or /run/weft/lab/NAME for
// root. The process that holds the lock on the file in it is the holder; if nobody holds the lock,
// the directory is a leftover. Nothing else says whether a lab is alive, so nothing can be out of date.
package holder
