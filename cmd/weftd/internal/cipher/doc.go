// Package cipher makes the program weftd the process of one WireGuard device in user space (the hidden verb "weftd wireguard"), so that
// sessions outlive the weftd that started it: see decision 54.
package cipher
