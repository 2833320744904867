// Package server is the program that embedded.Config describes: an etcd of one member. It links etcd's
// server, which costs what that initialises at each start.
package server

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"weft/lease/etcd/embedded"
)

const (
	// member and peerURL are names that etcd demands. There is no second member, so nothing listens on the peer
	// URL.
	member  = "weft"
	peerURL = "http://127.0.0.1:2380"
	// patience is how long a former process, whose weftd was killed and starts again, may take to free its
	// address.
	patience = 2 * time.Second
)

// Process is the whole of the program embedded.Program. It serves until lifeline ends, which that does with
// the process that holds its other end, and returns nil then. It does not stop etcd first: what etcd has
// acknowledged is on disk, as after a crash. Reports go to out, and etcd's log goes to standard error as
// JSON. A fatal entry of that log ends the process.
func Process(args []string, lifeline io.Reader, out io.Writer) error {
	report := json.NewEncoder(out)
	err := serve(args, lifeline, report)
	if err != nil {
		return errors.Join(err, report.Encode(embedded.Report{Error: err.Error()}))
	}
	return nil
}

func serve(args []string, lifeline io.Reader, report *json.Encoder) error {
	c, debug, err := embedded.ParseArgs(args)
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, lifeline) // however it ends
		close(gone)
	}()
	cfg, err := etcdConfig(c, debug)
	if err != nil {
		return err
	}
	etcd, err := start(c, cfg)
	if err != nil {
		return fmt.Errorf("embedded etcd in %s: %w", c.Dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return fmt.Errorf("embedded etcd in %s: %w", c.Dir, err)
	case <-gone:
		return nil
	}
	at := c.Endpoint()
	if c.Listen != "" {
		at = endpoint(cfg.ListenClientUrls[0].Scheme, etcd.Clients[0].Addr())
	}
	if err := report.Encode(embedded.Report{Endpoints: []string{at}}); err != nil {
		return err
	}
	select {
	case err := <-etcd.Err():
		return fmt.Errorf("embedded etcd: %w", err)
	case <-etcd.Server.StopNotify():
		return errors.New("embedded etcd: it stopped by itself")
	case <-gone:
		return nil
	}
}

func start(c embedded.Config, cfg *embed.Config) (*embed.Etcd, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if c.Listen == "" {
			err = prepareSocket(c.Socket())
		}
		if err == nil {
			var etcd *embed.Etcd
			if etcd, err = embed.StartEtcd(cfg); err == nil {
				return etcd, nil
			}
		}
		if time.Now().After(end) || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, err
		}
	}
}

// etcdConfig translates c.
func etcdConfig(c embedded.Config, debug bool) (*embed.Config, error) {
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
	// etcd computes the cluster id from the token: a store whose directory was lost must not look like the one
	// before.
	cfg.InitialClusterToken = rand.Text()
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	cfg.EnableGRPCGateway = false
	cfg.ElectionMs = 5 * cfg.TickMs // the least that etcd takes: alone there is nobody to wait for
	cfg.UnsafeNoFsync = c.NoSync
	cfg.LogOutputs, cfg.LogLevel = []string{"stderr"}, "error"
	if debug {
		cfg.LogLevel = "debug"
	}
	if c.TLS() {
		cfg.ClientTLSInfo = transport.TLSInfo{
			CertFile: c.CertFile, KeyFile: c.KeyFile,
			TrustedCAFile: c.CAFile, ClientCertAuth: c.CAFile != "",
		}
		cfg.TlsMinVersion = "TLS1.2"
	}
	return cfg, nil
}

// endpoint is the URL at which a process on this host reaches a.
func endpoint(scheme string, a net.Addr) string {
	ap := netip.AddrPort{}
	if t, ok := a.(*net.TCPAddr); ok {
		ap = t.AddrPort()
	}
	if ap.Addr().Unmap().IsUnspecified() {
		ap = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), ap.Port())
	}
	return scheme + "://" + ap.String()
}

// prepareSocket makes the directory of the socket at path, closes it to others, and refuses to take the
// socket of a server that runs: etcd would remove it before it finds that the data are in use.
func prepareSocket(path string) error {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || ok && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a directory of this user: remove it", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close() // nothing was sent
		return fmt.Errorf("another one answers on %s: stop it, or give this one a directory of its own: %w", path,
			syscall.EADDRINUSE)
	}
	return nil
}
