// Command route-controller is a reference for controllers of networks of type route-hook: nodes give it their views, and it programs the
// routes of the Linux router that it runs on.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"weft/test/routecontrol"
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
	listen := fs.String("listen", "127.0.0.1:8480", "`address:port` to serve nodes at; other than on loopback it takes --cert and --key")
	networks := fs.String("networks", "", "overlay `networks` that nodes may have routes in, with commas between them")
	tokenFile := fs.String("token-file", "", "`file` with the token that nodes show, in its first line")
	cert := fs.String("cert", "", "PEM `file` with the certificate that nodes are shown")
	key := fs.String("key", "", "PEM `file` with its key")
	clientCA := fs.String("client-ca", "", "PEM `file` with the authorities whose certificates nodes have to show")
	grace := fs.Duration("grace", 3*time.Minute, "how `long` after the start no route is removed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := routecontrol.Options{Grace: *grace, Logger: log}
	for n := range strings.SplitSeq(*networks, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(n))
		if err != nil {
			return fmt.Errorf("--networks %q: %w", n, err)
		}
		o.Networks = append(o.Networks, p.Masked())
	}
	if *tokenFile != "" {
		b, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		line, _, _ := strings.Cut(string(b), "\n")
		if o.Token = strings.TrimSpace(line); o.Token == "" {
			return fmt.Errorf("%s is empty", *tokenFile)
		}
	}
	at, err := netip.ParseAddrPort(*listen)
	if err != nil {
		return fmt.Errorf("--listen %q: %w", *listen, err)
	}
	if !at.Addr().IsLoopback() && (*cert == "" || o.Token == "" && *clientCA == "") {
		return errors.New("others than this host reach that address: give --cert and --key, and --token-file or --client-ca, since whoever may speak to this program changes routes")
	}
	router, err := routecontrol.OpenRouter()
	if err != nil {
		return err
	}
	defer router.Close()
	o.Programmer = router
	c, err := routecontrol.New(o)
	if err != nil {
		return err
	}
	return serve(ctx, c, at, *cert, *key, *clientCA, log)
}

// serve serves c until ctx ends.
func serve(ctx context.Context, c *routecontrol.Controller, at netip.AddrPort, cert, key, clientCA string, log *slog.Logger) error {
	server := &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if clientCA != "" {
		b, err := os.ReadFile(clientCA)
		if err != nil {
			return err
		}
		server.TLSConfig.ClientCAs, server.TLSConfig.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !server.TLSConfig.ClientCAs.AppendCertsFromPEM(b) {
			return fmt.Errorf("%s has no certificate in PEM", clientCA)
		}
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // what it interrupts is asked again
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.Tick()
			}
		}
	}()
	log.Info("serving", "address", l.Addr())
	if cert != "" {
		err = server.ServeTLS(l, cert, key)
	} else {
		err = server.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
