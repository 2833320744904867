// Package holder keeps labs for the weft command: each under a name, in a process that
// owns its namespaces and answers on a Unix socket in the lab's state directory.
//
//	weft lab run      Hold, in this process
//	weft lab up       Launch starts a process that Holds, and returns when the lab is up
//	weft lab exec     Exec passes its own stdin, stdout and stderr through the socket
//	weft lab down     Down asks the holder to end, or clears away what a dead one left
//
// An ordinary user's Hold runs inside a user namespace of its own: see Isolated.
//
// The state directory is $XDG_RUNTIME_DIR/weft-lab/NAME, or /run/weft/lab/NAME for
// root. Whoever has the lock on the file in it is the holder; a directory with a free
// lock is a leftover. That is all there is to find out, so nothing can be out of date.
package holder
