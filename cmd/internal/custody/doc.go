// Package custody keeps duplicates of weftd's descriptors outside of weftd, so that what they stand for outlives it: while
// weftd is away, however it ended, pods' TUNs have a reader to come, and keep carrier, addresses and routes. The next weftd
// gets them back, each with the bytes that it was kept with, and goes on.
//
// Who keeps them is one of two:
//
//   - the service manager, in its descriptor store (FileDescriptorStoreMax= of systemd), since it ends all processes of a
//     unit with weftd;
//   - elsewhere a process of our own, the holder (the hidden verb "weftd holder"), which does nothing else. weftd starts it
//     with the first thing to keep, and it ends by itself when there is nothing left to keep.
//
// The holder answers on a Unix socket beside weftd's control socket, only to its own user, and gives descriptors only to a
// weftd that names the same state directory (message.go has the protocol, hold_linux.go the process). A descriptor is opaque to it but for
// one question: a TUN whose device is gone, as with its pod's namespace, is dropped.
//
// A descriptor holds what it was opened in. A TUN that was opened in a pod's namespace, and any socket made there, keep that
// namespace alive for as long as they are kept; a TUN that was opened elsewhere and whose device was moved does not.
package custody
