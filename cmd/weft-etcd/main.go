// Command weft-etcd is the etcd of weftd --embedded-etcd. weftd starts it, and it ends when weftd does. It is a
// program of its own so that weftd, which mostly has its store elsewhere, does not link and initialise it.
package main

import (
	"os"
	"os/signal"
	"syscall"

	"weft/lease/etcd/embedded/server"
)

func main() {
	// A terminal or a service manager sends these signals to weftd as well, which decides when etcd ends.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := server.Process(os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		os.Exit(1) // Process has reported the error
	}
}
