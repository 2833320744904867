// Package custody keeps duplicates of weftd's descriptors outside of weftd. Pods' TUNs keep their carrier,
// addresses and routes while weftd is away, however it ended, and the next weftd takes the descriptors up.
//
// Each descriptor has a number. Descriptor 0 is the index, a memory file: it says which numbers belong to
// which item, what weftd noted of the item, and when weftd was last alive. A shelf keeps descriptors by their
// numbers, and there are two:
//
//   - the service manager's descriptor store (FileDescriptorStoreMax= of systemd), because systemd ends all
//     processes of a unit with weftd;
//   - elsewhere the holder (the hidden verb "weftd holder"), a process that does nothing else. weftd starts
//     it with the first thing to keep, and it ends by itself when nothing is left to keep.
//
// One goroutine of weftd makes the shelf equal to the items. A weftd that dies between two of its steps
// leaves an item whole or not at all, because an item counts only if the shelf has all numbers that the index
// gives it. A program that weftd executes in its own place finds the same index.
//
// The holder answers on a Unix socket beside weftd's control socket, only to its own user, and gives
// descriptors only to a weftd that names the same state directory.
//
// A descriptor holds what it was opened in. A TUN that was opened in a pod's namespace keeps that namespace
// alive for as long as it is kept. A TUN that was opened elsewhere, and whose device was moved, does not.
package custody
