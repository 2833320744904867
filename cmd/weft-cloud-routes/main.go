// Command weft-cloud-routes is a controller of networks of type route-hook: nodes give it their views, and it
// programs the route tables of a cloud.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/weft-cloud-routes/internal/aliroutes"
	"weft/cmd/weft-cloud-routes/internal/ec2routes"
	"weft/cmd/weft-cloud-routes/internal/gceroutes"
	"weft/cmd/weft-cloud-routes/internal/table"
	"weft/routing/routecontrol"
)

// version is set by the linker (-X main.version=…).
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "weft-cloud-routes:", err)
		os.Exit(1)
	}
}

const usage = `weft-cloud-routes programs the route tables of a cloud for weft networks of type route-hook.

	weft-cloud-routes aws --networks 10.5.0.0/16 --tag KEY=VALUE [flags]
	weft-cloud-routes google --networks 10.5.0.0/16 --name NAME --label KEY=VALUE [flags]
	weft-cloud-routes alibaba --networks 10.5.0.0/16 --tag KEY=VALUE [flags]

weft-cloud-routes CLOUD --help lists the flags of a cloud, weft-cloud-routes version says which one this is.
`

// cloud is one that can be programmed.
type cloud interface {
	// Declare declares the flags that only this cloud has.
	Declare(*flag.FlagSet)
	// Check says what is wrong with them, before anything is asked.
	Check() error
	// Open finds what flags do not say.
	Open(ctx context.Context, all table.Options) (table.Programmer, error)
}

// settings are the flags that all clouds have.
type settings struct {
	routecontrol.Settings
	interval time.Duration
	metrics  string
}

func (s *settings) check() error {
	if s.interval < 10*time.Second || s.interval > time.Hour {
		return fmt.Errorf("--interval %v: want 10s to 1h", s.interval)
	}
	if _, _, err := net.SplitHostPort(s.metrics); s.metrics != "" && err != nil {
		return fmt.Errorf("--metrics-listen %q: want ADDRESS:PORT", s.metrics)
	}
	return nil
}

// run serves nodes until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if buildinfo.Asked(args) {
		return buildinfo.Command(stdout, "weft-cloud-routes", buildinfo.Version(version), args[1:])
	}
	clouds := map[string]cloud{"aws": &ec2routes.Options{}, "google": &gceroutes.Options{},
		"alibaba": &aliroutes.Options{}}
	if len(args) == 0 || strings.TrimLeft(args[0], "-") == "help" || args[0] == "-h" {
		_, err := io.WriteString(stderr, usage)
		if len(args) == 0 {
			err = errors.New("which cloud?")
		}
		return err
	}
	c, ok := clouds[args[0]]
	if !ok {
		return fmt.Errorf("there is no cloud %q: see weft-cloud-routes help", args[0])
	}
	fs := flag.NewFlagSet("weft-cloud-routes "+args[0], flag.ContinueOnError)
	fs.SetOutput(stderr)
	var s settings
	s.Declare(fs)
	fs.DurationVar(&s.interval, "interval", time.Minute,
		"how `long` after the last look the cloud is looked at again, if no view changes before")
	fs.StringVar(&s.metrics, "metrics-listen", "",
		"`address:port` to serve /metrics at, without a token; not at all without it")
	c.Declare(fs)
	if err := fs.Parse(args[1:]); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("%q is no flag", fs.Arg(0))
	}
	o, err := s.Options()
	if err = errors.Join(err, s.check(), c.Check()); err != nil {
		return err
	}
	o.Logger, o.Again = slog.New(slog.NewTextHandler(stderr, nil)), s.interval
	m := newMetrics()
	if o.Programmer, err = c.Open(ctx, table.Options{Networks: o.Networks, Logger: o.Logger, Called: m.called,
		Sized: m.sized}); err != nil {
		return err
	}
	control, err := routecontrol.New(o)
	if err != nil {
		return err
	}
	if s.metrics != "" {
		stop, err := m.serve(s.metrics, control.Stats, o.Logger)
		if err != nil {
			return fmt.Errorf("--metrics-listen: %w", err)
		}
		defer stop()
	}
	return s.Serve(ctx, control)
}
