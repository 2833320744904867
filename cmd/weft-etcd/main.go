// Command weft-etcd is the etcd of weftd --embedded-etcd. weftd starts it, and it ends when weftd does. It is
// a program of its own so that weftd, which mostly has its store elsewhere, does not link and initialise it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"weft/cmd/internal/buildinfo"
	"weft/lease/etcd/embedded/server"
)

// version is set by the linker (-X main.version=…).
var version string

func main() {
	if buildinfo.Asked(os.Args[1:]) {
		os.Exit(printVersion(os.Args[2:]))
	}
	if len(os.Args) < 2 || os.Args[1] == "help" || os.Args[1] == "-h" ||
		strings.TrimLeft(os.Args[1], "-") == "help" {
		fmt.Println("weft-etcd is the etcd of weftd --embedded-etcd. weftd starts it, and gives it its " +
			"arguments: see weftd --help.\n\n  weft-etcd version [--json]")
		if len(os.Args) < 2 {
			os.Exit(2)
		}
		return
	}
	// A terminal or a service manager sends these signals to weftd as well, which decides when etcd ends.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if err := server.Process(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		os.Exit(1) // Process has reported the error
	}
}

// printVersion is weft-etcd version. It returns the exit status.
func printVersion(args []string) int {
	switch err := buildinfo.Command(os.Stdout, "weft-etcd", buildinfo.Version(version), args); {
	case errors.Is(err, buildinfo.ErrUsage):
		fmt.Fprintln(os.Stderr, "weft-etcd:", err)
		return 2
	case err != nil:
		fmt.Fprintln(os.Stderr, "weft-etcd:", err)
		return 1
	}
	return 0
}
