package routecontrol

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// Settings are the flags that controllers share: where nodes find them, and who is heard.
type Settings struct {
	listen, networks, token, cert, key, clientCA string
	grace                                        time.Duration
}

// Declare declares the flags.
func (s *Settings) Declare(fs *flag.FlagSet) {
	fs.StringVar(&s.listen, "listen", "127.0.0.1:8480",
		"`address:port` to serve nodes at; other than on loopback it takes --cert and --key")
	fs.StringVar(&s.networks, "networks", "",
		"overlay `networks` that nodes may have routes in, with commas between them")
	fs.StringVar(&s.token, "token-file", "", "`file` with the token that nodes show, in its first line")
	fs.StringVar(&s.cert, "cert", "", "PEM `file` with the certificate that nodes are shown")
	fs.StringVar(&s.key, "key", "", "PEM `file` with its key")
	fs.StringVar(&s.clientCA, "client-ca", "",
		"PEM `file` with the authorities whose certificates nodes have to show")
	fs.DurationVar(&s.grace, "grace", 3*time.Minute,
		"how `long` after the start, and after most nodes fell silent together, no route is removed")
}

// Options reads what the flags say. The caller adds the Programmer and what else there is.
func (s *Settings) Options() (Options, error) {
	o := Options{Grace: s.grace}
	if s.networks == "" {
		return o, errors.New("--networks is missing: which networks may nodes have routes in?")
	}
	for n := range strings.SplitSeq(s.networks, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(n))
		if err != nil {
			return o, fmt.Errorf("--networks %q: want networks such as 10.5.0.0/16, with commas between them", n)
		}
		o.Networks = append(o.Networks, p.Masked())
	}
	if s.token != "" {
		first, err := readToken(s.token)
		if err != nil {
			return o, err
		}
		r := &renewed[string]{what: "token", make: func() (string, error) { return readToken(s.token) }, now: first}
		o.Token = r.get
	}
	at, err := netip.ParseAddrPort(s.listen)
	switch {
	case err != nil:
		return o, fmt.Errorf("--listen %q: want ADDRESS:PORT", s.listen)
	case (s.cert == "") != (s.key == ""):
		return o, errors.New("--cert needs --key, and --key needs --cert")
	case s.clientCA != "" && s.cert == "":
		return o, errors.New("--client-ca needs --cert and --key: without TLS nobody shows a certificate")
	case !at.Addr().IsLoopback() && (s.cert == "" || o.Token == nil && s.clientCA == ""):
		return o, errors.New("others than this host reach that address: give --cert and --key, and --token-file " +
			"or --client-ca, since whoever may speak to this program changes routes")
	}
	return o, nil
}

// Serve serves c, and has it make rounds, until ctx ends. It is called after Options.
func (s *Settings) Serve(ctx context.Context, c *Controller) error {
	server := &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second}
	if s.cert != "" {
		first, err := s.tlsConfig()
		if err != nil {
			return err
		}
		r := &renewed[*tls.Config]{what: "certificate", make: s.tlsConfig, now: first}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12,
			GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return r.get(c.o.Logger), nil }}
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = c.Run(ctx) // it ends with ctx alone
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // what it interrupts is asked again
	c.o.Logger.Info("serving", "address", l.Addr())
	if s.cert != "" {
		err = server.ServeTLS(l, "", "")
	} else {
		err = server.Serve(l)
	}
	stop()
	cancel()
	<-over
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
