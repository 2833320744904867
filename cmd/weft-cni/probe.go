package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"weft/cmd/internal/smallhttp"
)

// probeTimeout is less than the manifests allow a probe.
const probeTimeout = 4 * time.Second

// probe is what the manifests' probes run. It asks over the Unix socket, which no pod can take over; a
// pod with a host port could take over the port of /readyz. It is a command of this program because
// this one starts in a few milliseconds.
func probe(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("probe", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	usual := smallhttp.DefaultSocket
	if env := os.Getenv("WEFTD_CONTROL_SOCKET"); env != "" { // as weftd itself reads it, in the same container
		usual = env
	}
	socket := fs.String("control-socket", usual, "")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("probe: %w: %w", err, errUsage)
	}
	if fs.NArg() != 1 || fs.Arg(0) != "live" && fs.Arg(0) != "ready" {
		return fmt.Errorf("probe takes live or ready, not %q: %w\nusage: weft-cni probe [--control-socket FILE] "+
			"live|ready", fs.Args(), errUsage)
	}
	s, err := askDaemon(context.Background(), *socket, probeTimeout)
	switch {
	case fs.Arg(0) == "live" && errors.Is(err, smallhttp.ErrNotListening):
		// weftd has not opened the socket yet, or goes on without it. If weftd were dead, there would be no
		// container in which this could run.
		fmt.Fprintln(stdout, err)
		return nil
	case err != nil:
		return err
	case fs.Arg(0) == "ready" && !s.Ready:
		return errors.New("not ready: " + strings.Join(s.NotReady, "; "))
	}
	fmt.Fprintln(stdout, "weftd", s.Version, "answers; ready:", s.Ready)
	return nil
}
