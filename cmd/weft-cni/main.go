// Command weft-cni gives a container its interface and address in the overlay: a CNI
// plugin that takes the place of flannel's. It renders the node's subnet.env into the
// configuration of another plugin, by default bridge with host-local, and calls that.
//
//	runtime ──config──> weft-cni ──config + subnet.env──> bridge ──> host-local
//
// It implements version 1.1.0 of the CNI specification and all older ones. For people, and
// for manifests, it has the commands install and probe.
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

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cni "github.com/containernetworking/cni/pkg/version"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/internal/socket"
	"weft/cmd/weft-cni/internal/install"
)

// version is set by the linker (-X main.version=…).
var version string

func main() {
	if len(os.Args) > 1 {
		if err := run(os.Args[1:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "weft-cni:", err)
			if wrongUsage(err) {
				os.Exit(2)
			}
			os.Exit(1)
		}
		return
	}
	p := plugin{stdout: os.Stdout, stderr: os.Stderr}
	about := "weft-cni " + versionText() +
		": a CNI plugin, to be called by a container runtime; see weft-cni help"
	if fault := skel.PluginMainFuncsWithError(p.funcs(), cni.All, about); fault != nil {
		fail(fault)
	}
}

// fail prints the error in the specification's form, and ends the process.
func fail(fault *types.Error) {
	if err := fault.Print(); err != nil {
		fmt.Fprintln(os.Stderr, "weft-cni:", fault, err)
	}
	os.Exit(1)
}

const usage = `weft-cni is a CNI plugin: a container runtime calls it, with its command in the
environment and its configuration on standard input.

  weft-cni install [flags]   put it where the runtime looks for it
  weft-cni probe live|ready  ask the node's weftd, over its socket (--control-socket); not 0 if it is not
  weft-cni version [--json]
  weft-cni help

Exit status: 0, or 1 for a failure, 2 for a command line that is not understood.

`

// errUsage is wrapped by errors about the command line.
var errUsage = errors.New("see weft-cni help")

// wrongUsage reports whether err is about the command line.
func wrongUsage(err error) bool {
	return errors.Is(err, errUsage) || errors.Is(err, install.ErrUsage) || errors.Is(err, buildinfo.ErrUsage)
}

// run runs a command that a person, an init container or a probe calls.
func run(args []string, stdout io.Writer) error {
	switch args[0] {
	case "install":
		return install.Run(args[1:], stdout)
	case "probe":
		return probe(args[1:], stdout)
	case "version", "-version", "--version":
		return buildinfo.Command(stdout, "weft-cni", versionText(), args[1:])
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
		install.Usage(stdout)
		return nil
	}
	return fmt.Errorf("%q is no command of weft-cni, which has install, probe, version and help: %w",
		args[0], errUsage)
}

func versionText() string { return buildinfo.Version(version) }

// probeTimeout is less than the manifests allow a probe.
const probeTimeout = 4 * time.Second

// probe is what the manifests' probes run. It asks over the Unix socket, which no pod can take over; a
// pod with a host port could take over the port of /readyz. It is a command of this program because
// this one starts in a few milliseconds.
func probe(args []string, stdout io.Writer) error {
	fs := flag.NewFlagSet("probe", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	usual := socket.Default
	if env := os.Getenv("WEFTD_CONTROL_SOCKET"); env != "" { // as weftd itself reads it, in the same container
		usual = env
	}
	path := fs.String("control-socket", usual, "")
	if err := fs.Parse(args); err != nil {
		return fmt.Errorf("probe: %w: %w", err, errUsage)
	}
	if fs.NArg() != 1 || fs.Arg(0) != "live" && fs.Arg(0) != "ready" {
		return fmt.Errorf("probe takes live or ready, not %q: %w\nusage: weft-cni probe [--control-socket FILE] "+
			"live|ready", fs.Args(), errUsage)
	}
	s, err := askDaemon(context.Background(), *path, probeTimeout)
	switch {
	case fs.Arg(0) == "live" && errors.Is(err, socket.ErrNoDaemon):
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
