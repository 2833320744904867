// Package systemd runs a systemd of its own in a host of a lab, as the first process of new mount, PID, IPC,
// UTS and cgroup namespaces, so that a unit is tried by what will run it. It has the machine's programs and
// no unit but those that it is given: no udev, no journal, no bus. It needs root, Debian's systemd, and a
// kernel with cgroups of version 2, of which none has to be mounted.
package systemd
