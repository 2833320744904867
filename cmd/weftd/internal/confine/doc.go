// Package confine takes from weftd, once it knows its settings, the rights that it has no need of:
// capabilities (capabilities(7)), new ones by execve(2), and, where that is asked for, writing to files other
// than its own (landlock(7)). It never gets a right back, nor do the programs that it starts: iptables,
// weft-etcd, the holder, an extension's commands.
//
// The service manager may do the same, and the shipped unit does; this is for everybody who starts weftd
// without one.
package confine
