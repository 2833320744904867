// Package session lets ordinary users work on the hosts of a lab. What a lab's own daemons are is root's;
// what runs in a session has a user id other than 0, no capability, and what a login on Debian gives it: a
// home, a run-time directory, a range of subordinate ids, /dev/net/tun with the mode that udev gives it, and
// cgroups of version 2.
//
// All of that is mounted in namespaces of the host's own, so that the machine that the tests run on stays as
// it is.
package session
