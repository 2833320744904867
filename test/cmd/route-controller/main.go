// Command route-controller is a reference for controllers of networks of type route-hook: nodes give it their
// views, and it programs the routes of the Linux router that it runs on.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"weft/routing/routecontrol"
	"weft/test/linuxrouter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "route-controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("route-controller", flag.ContinueOnError)
	var s routecontrol.Settings
	s.Declare(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	o, err := s.Options()
	if err != nil {
		return err
	}
	router, err := linuxrouter.Open()
	if err != nil {
		return err
	}
	defer router.Close()
	o.Programmer, o.Logger = router, slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := routecontrol.New(o)
	if err != nil {
		return err
	}
	return s.Serve(ctx, c)
}
