// Package embedded describes an etcd server of one member that runs on this host, for a
// lab or a first node that has no other store: where it keeps its data, whom it serves,
// and what is wrong with such a description. Package server runs it. They are two, so that a
// program that only has to know where the server is does not link etcd's.
package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
)

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
	// Logger says by its level whether etcd logs more than its errors. The server itself needs none.
	Logger *slog.Logger
}

// maxSocket is the longest path of a Unix socket, in bytes (unix(7)).
const maxSocket = 107

// Check reports everything that is wrong with c; it changes nothing.
func (c Config) Check() error {
	_, err := c.ListenURL()
	if n := len(c.Socket()); c.Listen == "" && n > maxSocket {
		err = errors.Join(err, fmt.Errorf("embedded etcd: the path of its socket, %s, has %d bytes, and %d are "+
			"the most: choose a shorter directory", c.Socket(), n, maxSocket))
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

// TLS reports whether clients are served over TLS.
func (c Config) TLS() bool { return c.CertFile != "" }

// ListenURL is the URL that clients are served on: Listen's, or that of Socket.
func (c Config) ListenURL() (url.URL, error) {
	if c.Listen == "" {
		return url.URL{Scheme: "unix", Path: c.Socket()}, nil
	}
	addr := c.Listen
	scheme := map[bool]string{true: "https", false: "http"}[c.TLS()]
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
	if !ap.Addr().Unmap().IsLoopback() && !c.TLS() && !c.Insecure {
		return url.URL{}, fmt.Errorf("embedded etcd on %s: an address that is not loopback needs TLS "+
			"(certificate and key) or --embedded-etcd-insecure", ap)
	}
	return url.URL{Scheme: scheme, Host: ap.String()}, nil
}

// Socket is the path of the Unix socket that clients are served on if no Listen is given. It
// lies in a directory of its own, below Dir, that others can not enter.
func (c Config) Socket() string {
	dir := c.Dir
	if abs, err := filepath.Abs(dir); err == nil { // else there is no working directory
		dir = abs
	}
	return filepath.Join(dir, "client", "etcd.sock")
}

// Endpoint is the URL of Socket.
func (c Config) Endpoint() string { return "unix://" + c.Socket() }
