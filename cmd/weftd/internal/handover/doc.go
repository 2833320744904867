// Package handover is what two processes of weftd say to each other while one takes the other's place, without a packet lost.
//
// The new one asks at the old one's control socket (package control), and gets one end of a connection of packets. Then:
//
//	old → new   item, claim, listener, store   what the old one has, with descriptors; end is the last
//	new → old   ready                          everything is in place with it, and it reads nothing
//	old → new   yours                          the old one reads and writes nothing any more
//	new → old   flowing                        the new one does
//	old → new   bye                            the old one believes that, and ends
//
// Until bye the old one may say back instead, with the reason: it goes on, and the new one ends. It does so when the new one is gone,
// or too slow. Between flowing and bye it waits for a moment whether the new one dies of its first packets, and then takes
// everything back. An old one that is gone, or that was asked to stop, has said nothing: then the new one goes on with what it has. So there is
// one who carries packets at each moment, whoever dies. For that a process closes its end when it reads nothing any more, and not before.
package handover
