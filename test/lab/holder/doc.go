// Package holder keeps labs for the weft command. Each has a name, and a process, its holder, that owns its
// namespaces.
//
//	weft lab run      calls Hold in its own process
//	weft lab up       calls Launch, which starts a process that calls Hold, and returns when the lab is up
//	weft lab exec     calls Exec, which enters the namespaces of one of the holder's threads and becomes the command
//	weft lab down     calls Down, which sends the holder SIGTERM, or removes what a dead one left
//
// If an ordinary user runs it, Hold is in a user namespace of its own: see Isolated. Exec goes there first.
//
// The state directory is $XDG_RUNTIME_DIR/weft-lab/NAME, or /run/weft/lab/NAME for root. The holder has a
// record lock on the file "lock" there, of which the kernel says whose it is. If nobody has the lock, the
// directory is a leftover. Nothing else says whether a lab is alive, so nothing can be out of date. While the
// lab is up, the file "lab.json" says what it consists of.
package holder
