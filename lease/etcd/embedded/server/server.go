// Package server runs the etcd server that an embedded.Config describes, inside this
// process. It links etcd's server, and importing it costs what that initialises at each start.
package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

	"weft/lease/etcd/embedded"
	"weft/lease/etcd/internal/zapslog"
)

// member and peerURL are names that etcd demands. There is no second member, so
// nothing listens on the peer URL.
const (
	member  = "weft"
	peerURL = "http://127.0.0.1:2380"
)

const closeTimeout = 10 * time.Second

// Server is a running etcd. Its methods are safe for concurrent use.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	fatal    chan error
	closing  sync.Once
	closed   chan struct{}
}

// Start runs the server and returns when it serves; it gives up when ctx ends, which
// has no effect later. On a directory that holds data it goes on with that.
// The caller closes the Server.
func Start(ctx context.Context, c embedded.Config) (*Server, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded etcd: %w", err)
	}
	if c.Listen == "" {
		if err := prepareSocket(c.Socket()); err != nil {
			return nil, err
		}
	}
	s := &Server{fatal: make(chan error, 1), closed: make(chan struct{})}
	cfg, err := etcdConfig(c, s.fatal)
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

// etcdConfig translates c. What etcd would exit over is sent to fatal.
func etcdConfig(c embedded.Config, fatal chan<- error) (*embed.Config, error) {
	listen, err := c.ListenURL()
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
	if c.TLS() {
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
