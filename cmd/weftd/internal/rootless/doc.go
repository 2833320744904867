// Package rootless brings weftd to where an ordinary user has rights: into a user namespace of the user's,
// while it stays in the network namespace that it was started in. There it makes the underlay's sockets, as
// everybody may, and in another network namespace, which belongs to the user namespace, the TUN.
//
// A process of many threads cannot enter a user namespace, and Go's processes have many. So weftd executes
// nsenter or unshare (util-linux), which execute weftd again: the process and its id stay the same. That this
// works is tried first in a child, whose words tell what is missing.
package rootless
