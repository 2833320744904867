// Package embedded runs an etcd server of one member inside the daemon, for a lab or
// a first node that has no other store.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"weft/lease/etcd/internal/zapslog"
)

// member and peerURL are names that etcd demands. There is no second member, so
// nothing listens on the peer URL.
const (
	member  = "weft"
	peerURL = "http://127.0.0.1:2380"
)

const closeTimeout = 10 * time.Second

// Config says where the server keeps its data and whom it serves.
type Config struct {
	// Dir holds the data. It is made, with mode 0700, if it does not exist.
	Dir string
	// Listen is the address and port for clients, by number, or as a URL of that.
	// Port 0 takes a free one. Empty means the Unix socket that Socket names, which only
	// this process's user and root can use.
	Listen string
	// CertFile and KeyFile turn TLS on. With CAFile, clients have to show a
	// certificate that it signed.
	CertFile, KeyFile, CAFile string
	// Insecure permits an address that is not loopback without TLS: whoever reaches
	// it can then take any subnet, and write the network configuration.
	Insecure bool
	// NoSync leaves out fsync. A crash of the machine then loses data; for tests and labs.
	NoSync bool
	// Logger receives etcd's errors as warnings, and the rest at debug level. Nil discards.
	Logger *slog.Logger
}

// Server is a running etcd. Its methods are safe for concurrent use.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	fatal    chan error
	closing  sync.Once
	closed   chan struct{}
}

// Check reports everything that is wrong with c; it changes nothing.
func (c Config) Check() error {
	_, err := c.listen()
	if n := len(c.Socket()); c.Listen == "" && n > maxSocket {
		err = errors.Join(err, fmt.Errorf("embedded etcd: the path of its socket, %s, has %d bytes, and %d are the most: choose a shorter directory", c.Socket(), n, maxSocket))
	}
	if c.Dir == "" {
		err = errors.Join(err, errors.New("embedded etcd: no data directory"))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		err = errors.Join(err, errors.New("embedded etcd: certificate and key file go together"))
	}
	if c.CAFile != "" && c.CertFile == "" {
		err = errors.Join(err, errors.New("embedded etcd: a CA file needs a certificate and a key file beside it"))
	}
	for _, f := range []string{c.CertFile, c.KeyFile, c.CAFile} {
		if f == "" {
			continue
		}
		if _, serr := os.Stat(f); serr != nil {
			err = errors.Join(err, fmt.Errorf("embedded etcd: %w", serr))
		}
	}
	return err
}

func (c Config) tls() bool { return c.CertFile != "" }

// listen returns the URL to serve on.
func (c Config) listen() (url.URL, error) {
	if c.Listen == "" {
		return url.URL{Scheme: "unix", Path: c.Socket()}, nil
	}
	addr := c.Listen
	scheme := map[bool]string{true: "https", false: "http"}[c.tls()]
	if u, err := url.Parse(addr); err == nil && u.Host != "" {
		if u.Scheme != scheme {
			return url.URL{}, fmt.Errorf("embedded etcd on %s: the scheme is %s with these files", addr, scheme)
		}
		addr = u.Host
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return url.URL{}, fmt.Errorf("embedded etcd on %q: want an address and port such as 192.0.2.1:2379", addr)
	}
	if !ap.Addr().Unmap().IsLoopback() && !c.tls() && !c.Insecure {
		return url.URL{}, fmt.Errorf("embedded etcd on %s: an address that is not loopback needs TLS (certificate and key) or --embedded-etcd-insecure", ap)
	}
	return url.URL{Scheme: scheme, Host: ap.String()}, nil
}

// Start runs the server and returns when it serves; it gives up when ctx ends, which
// has no effect later. On a directory that holds data it goes on with that.
// The caller closes the Server.
func Start(ctx context.Context, c Config) (*Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	if c.Listen == "" {
		if err := c.prepareSocket(); err != nil {
			return nil, err
		}
	}
	s := &Server{fatal: make(chan error, 1), closed: make(chan struct{})}
	cfg, err := c.embed(s.fatal)
	if err != nil {
		return nil, err
	}
	if err := s.launch(cfg); err != nil {
		return nil, fmt.Errorf("embedded etcd in %s: %w", c.Dir, errors.Join(err, s.reason()))
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err = <-s.etcd.Err():
	case err = <-s.fatal:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("embedded etcd in %s: %w", c.Dir, err)
	}
	s.endpoint = endpoint(cfg.ListenClientUrls[0].Scheme, s.etcd.Clients[0].Addr())
	if c.Listen == "" {
		s.endpoint = c.Endpoint()
	}
	return s, nil
}

// launch starts etcd on a goroutine of its own, because what etcd's log calls fatal
// ends that. On data that is broken in the right place, etcd panics.
func (s *Server) launch(cfg *embed.Config) error {
	started := make(chan error, 1)
	go func() {
		err := errors.New("it ended while starting")
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("it panicked: %v", p)
			}
			started <- err
		}()
		s.etcd, err = embed.StartEtcd(cfg)
	}()
	return <-started
}

// embed translates c. What etcd would exit over is sent to fatal.
func (c Config) embed(fatal chan<- error) (*embed.Config, error) {
	listen, err := c.listen()
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = member, c.Dir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{listen}, []url.URL{listen}
	if listen.Host == "" { // etcd demands one; no client of ours follows what is advertised
		cfg.AdvertiseClientUrls = []url.URL{{Scheme: "unix", Host: "localhost:0"}}
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, []url.URL{*peer}
	cfg.InitialCluster = member + "=" + peerURL
	// The cluster id is computed from the token: a store whose directory was lost
	// must not look like the one before.
	cfg.InitialClusterToken = rand.Text()
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	cfg.EnableGRPCGateway = false
	cfg.ElectionMs = 5 * cfg.TickMs // the least etcd takes: alone there is nobody to wait for
	cfg.UnsafeNoFsync = c.NoSync
	if c.tls() {
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: c.CertFile, KeyFile: c.KeyFile,
			TrustedCAFile: c.CAFile, ClientCertAuth: c.CAFile != "",
		}
		cfg.TlsMinVersion = "TLS1.2"
	}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapslog.New(c.Logger, zap.WithFatalHook(fatalHook(fatal)), zap.WithPanicHook(fatalHook(fatal))))
	return cfg, nil
}

// fatalHook keeps a fault of the store from taking the data plane with it, which
// zap's own exit or panic would do. It ends the goroutine that met the fault.
type fatalHook chan<- error

// OnWrite implements zapcore.CheckWriteHook.
func (h fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(enc)
	}
	select {
	case h <- fmt.Errorf("%s: %v", e.Message, enc.Fields["error"]):
	default:
	}
	runtime.Goexit()
}

func (s *Server) reason() error {
	select {
	case err := <-s.fatal:
		return err
	default:
		return nil
	}
}

// endpoint is the URL at which a process on this host reaches a.
func endpoint(scheme string, a net.Addr) string {
	ap := netip.AddrPort{}
	if t, ok := a.(*net.TCPAddr); ok {
		ap = t.AddrPort()
	}
	if ip := ap.Addr().Unmap(); ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		ap = netip.AddrPortFrom(ip, ap.Port())
	}
	return scheme + "://" + ap.String()
}

// Endpoints returns the URL for clients on this host.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Wait blocks until the server fails, which it returns, or until ctx ends or Close
// is called: then it returns nil.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case err, ok := <-s.etcd.Err():
		if !ok { // closed by Close
			return nil
		}
		return fmt.Errorf("embedded etcd: %w", err)
	case err := <-s.fatal:
		return fmt.Errorf("embedded etcd: %w", err)
	case <-s.etcd.Server.StopNotify():
		return nil
	case <-ctx.Done():
		return nil
	}
}

// Close stops the server and returns when it has; data that was acknowledged is on
// disk. A server that has failed may be unable to stop, which is an error after 10 s.
func (s *Server) Close() error {
	s.closing.Do(func() {
		go func() {
			s.etcd.Close()
			close(s.closed)
		}()
	})
	select {
	case <-s.closed:
		return nil
	case <-time.After(closeTimeout):
		return fmt.Errorf("embedded etcd: it does not stop within %s", closeTimeout)
	}
}
