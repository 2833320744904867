// Command weftd joins this host to a flat network of containers: it leases a
// subnet from the store and carries packets between the subnets. It takes
// flanneld's flags.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/check"
	"weft/cmd/weftd/internal/confine"
	"weft/cmd/weftd/internal/daemon"
	"weft/cmd/weftd/internal/ops"
	"weft/cmd/weftd/internal/reexec"
	"weft/cmd/weftd/internal/rootless"
	"weft/tunnel"
)

// version is set by the linker (-X main.version=…).
var version string

// The exit statuses. 0 is an asked-for stop, and nothing else.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() {
	// The first thread is what /proc shows of the process. It stays in the network namespace where it was
	// started: a thread that goes to another one does not come back. It is held before anything waits, after
	// which this may be another thread.
	runtime.LockOSThread()
	arrival, err := reexec.Arrive()
	// SIGHUP asks for a reload, and ends no weftd: neither one that has not begun to listen to it, nor one that
	// is about to stop, nor a process that weftd has started from this program.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err == nil {
		arrival.Watch()
		err = run(ctx, os.Args[1:], process{arrival, hangups}, os.Stdout, os.Stderr)
	}
	if err != nil && ctx.Err() == nil { // if that fails, too, the first of them is the one to mend
		_ = arrival.Back(err)
	}
	switch {
	case errors.Is(err, options.ErrUsage), errors.Is(err, buildinfo.ErrUsage):
		fmt.Fprintln(os.Stderr, "weftd:", err)
		os.Exit(exitUsage)
	case err != nil:
		fmt.Fprintln(os.Stderr, "weftd:", err)
		os.Exit(exitFailure)
	}
}

// process is what a program that starts finds.
type process struct {
	arrival *reexec.Arrival // what the program before left, nil after an ordinary start
	hangups chan os.Signal  // each asks for a reload; nil for none
}

// become executes another program in this one's place.
func (p process) become(program reexec.Program, s reexec.State) error {
	err := reexec.Exec(program, s)
	if p.hangups != nil { // which were ignored
		signal.Notify(p.hangups, syscall.SIGHUP)
	}
	return err
}

// run is the whole program: it returns nil after help, version, a check without
// faults, or when ctx ends. Logs go to stderr.
func run(ctx context.Context, args []string, p process, stdout, stderr io.Writer) error {
	// flanneld's --version stands among other flags, which it is read with; with --json, and as a word, it is
	// ours.
	if buildinfo.Asked(args) && (args[0] == "version" || len(args) > 1 &&
		strings.TrimLeft(args[1], "-") == "json") {
		return buildinfo.Command(stdout, "weftd", versionText(), args[1:])
	}
	if len(args) > 0 && args[0] == custody.Verb {
		o, err := custody.HoldArguments(args[1:])
		if err != nil {
			return fmt.Errorf("%w: %w", options.ErrUsage, err)
		}
		// it needs none, and where the kernel lets it keep one it holds the descriptors all the same
		_, _ = confine.Drop(nil)
		return custody.Hold(ctx, o)
	}
	if len(args) > 0 && args[0] == reexec.Verb {
		_, err := parse(options.NewReader(args[1:], os.Environ()))
		return reexec.Answer(stdout, err)
	}
	if done, err := rootless.Aside(os.Stdin); done {
		return err
	}
	settings := options.NewReader(args, os.Environ())
	cfg, err := parse(settings)
	switch {
	case errors.Is(err, options.ErrHelp):
		options.Usage(stdout)
		return nil
	case err == nil && cfg.Version:
		fmt.Fprintln(stdout, "weftd", versionText())
		return nil
	case cfg.Check:
		return check.Run(ctx, cfg, err, stdout)
	case err != nil:
		return err
	}
	// A second weftd by mistake writes nothing.
	if p.arrival == nil && !cfg.Replace && cfg.ControlSocket != "" {
		if err := control.Occupied(cfg.ControlSocket); err != nil {
			return err
		}
	}
	if os.Getenv(options.Inside) != "" { // it executes itself no more, and starts what keeps its namespace
		custody.CloseOnExec(os.Getenv)
	}
	if cfg.Rootless.Place, err = rootless.Enter(cfg, os.Args); err != nil {
		return err
	}
	custody.CloseOnExec(os.Getenv)
	log, out := newLogger(cfg.Log, stderr)
	defer out.limit.Flush()
	cfg.Workers = reserveProcessors()
	remarks(cfg, log)
	if err := confine.Enter(cfg, log); err != nil {
		return err
	}
	p.arrival.Alive()
	program := daemon.Program{
		Hangups: p.hangups, Arrival: p.arrival, Exec: p.become,
		Log: out.set, Read: func() (options.Config, error) { return parseAgain(settings, cfg) },
	}
	err = serve(ctx, cfg, program, log)
	if gives := new(daemon.Yielded); errors.As(err, &gives) {
		return hold(ctx, cfg, gives, log)
	}
	if err != nil {
		return err
	}
	log.Info("stopped as asked; device, routes, lease and subnet file stay")
	return nil
}

// hold keeps what another weftd takes up that has asked for this one's place. Then it waits to be stopped:
// whoever started this process would start it again.
func hold(ctx context.Context, cfg options.Config, gives *daemon.Yielded, log *slog.Logger) error {
	log.Info("keeping what is open for the weftd that takes this one's place", "descriptors",
		len(gives.Left.FDs))
	go ops.NewSystemd(log).Watchdog(ctx, func() bool { return true }) // ends with ctx
	socket, l, err := custody.ListenInPlace(ctx, cfg.ControlSocket)
	gives.Answer()
	if err == nil {
		err = custody.Hold(ctx, custody.HoldOptions{
			Socket: socket, Listener: l, Owner: gives.Owner, Timeout: max(gives.Timeout, time.Minute),
			FDs: gives.Left.FDs,
		})
	}
	if err != nil {
		log.Warn("the other weftd makes its ports anew", "reason", err)
	}
	<-ctx.Done()
	return nil
}

// parse reads flags and variables. A user without rights over the network namespace is rootless without
// asking for it, unless the flag says no.
func parse(settings *options.Reader) (options.Config, error) {
	cfg, err := settings.Read()
	if !cfg.Rootless.Given && !cfg.Rootless.On && !cfg.Kube.On && !cfg.Version && rootless.Found() {
		return settings.Read(options.Inside + "=found")
	}
	return cfg, err
}

// parseAgain reads them for a reload of a daemon that runs with cfg, which is rootless or not, whatever it
// has rights for by now.
func parseAgain(settings *options.Reader, cfg options.Config) (options.Config, error) {
	if cfg.Rootless.On && !cfg.Rootless.Given {
		return settings.Read(options.Inside + "=found")
	}
	return settings.Read()
}

// serve runs the daemon until ctx ends, or the network namespace of the TUN does.
func serve(ctx context.Context, cfg options.Config, program daemon.Program, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := make(chan error, 1)
	go func() { // it ends with ctx
		err := rootless.Watch(ctx, cfg.Rootless.Place)
		gone <- err
		if err != nil {
			cancel(err)
		}
	}()
	err := daemon.Run(ctx, cfg, program, versionText(), log)
	cancel(nil)
	if ended := <-gone; !errors.Is(err, ended) { // else it is what ended the daemon, which says so
		err = errors.Join(err, ended)
	}
	return err
}

// reserveProcessors raises GOMAXPROCS so that each worker of the data plane has a Go processor
// besides those of the rest, and keeps it while it waits for packets. It returns the number of
// workers. A waiting thread takes no CPU.
func reserveProcessors() (workers int) {
	n := runtime.GOMAXPROCS(0)
	workers = tunnel.DefaultWorkers(n)
	runtime.GOMAXPROCS(n + workers)
	return workers
}

// remarks logs, once, the settings that are allowed but perhaps not meant.
func remarks(cfg options.Config, log *slog.Logger) {
	for _, r := range cfg.Remarks() {
		log.Warn(r)
	}
	for _, r := range cfg.Quiet() {
		log.Debug(r)
	}
}

func versionText() string { return buildinfo.Version(version) }
