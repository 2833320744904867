package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// resolveTLS honours each file on its own: a CA alone is enough for https, where
// flannel would ignore it.
func (r *resolved) resolveTLS() error {
	if r.CAFile == "" && r.CertFile == "" && r.KeyFile == "" {
		return nil
	}
	c, err := readTLS(r.Config)
	r.tls = &handshakes{TransportCredentials: credentials.NewTLS(c), cfg: r.Config, log: r.Logger, good: c}
	return err
}

// secure reports whether the endpoints, which all have one scheme, are spoken to with TLS.
func (r *resolved) secure() bool {
	return strings.HasPrefix(r.Endpoints[0], "https:") || strings.HasPrefix(r.Endpoints[0], "unixs:")
}

// readTLS reads the files that c names.
func readTLS(c Config) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	return t, errors.Join(loadCA(c, t), loadPair(c, t))
}

func loadCA(c Config, t *tls.Config) error {
	if c.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return fmt.Errorf("etcd CA file: %w", err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("etcd CA file %s: no PEM certificate in it", c.CAFile)
	}
	return nil
}

func loadPair(c Config, t *tls.Config) error {
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return nil
	case c.KeyFile == "":
		return fmt.Errorf("etcd certificate %s: its key file is not given", c.CertFile)
	case c.CertFile == "":
		return fmt.Errorf("etcd key %s: its certificate file is not given", c.KeyFile)
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return fmt.Errorf("etcd certificate %s with key %s: %w", c.CertFile, c.KeyFile, err)
	}
	// It is given whatever authorities the server asks for: a refusal that says why is better than none.
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	t.Certificates = []tls.Certificate{pair} // for ends
	return nil
}

// handshakes reads the TLS files again for each new connection, so that they can be replaced in place: certificate, key and
// authorities. What cannot be read, or has expired, does not take the place of what could, since a connection that is lost
// while files are being replaced has to come back. It is safe for concurrent use.
type handshakes struct {
	credentials.TransportCredentials // for all but handshakes
	cfg                              Config
	log                              *slog.Logger

	mu   sync.Mutex // protects what follows
	good *tls.Config
	said string // why the files are not used
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(h.read()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials. Copies share what was read.
func (h *handshakes) Clone() credentials.TransportCredentials { return h }

// snapshot returns what was read last, nil of nil.
func (h *handshakes) snapshot() *tls.Config {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.good
}

// read returns what the files have now, else what they had when they were good.
func (h *handshakes) read() *tls.Config {
	now, err := readTLS(h.cfg)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && expired(now) && !expired(h.good) {
		err = fmt.Errorf("etcd certificate %s has expired", h.cfg.CertFile)
	}
	if err != nil {
		if h.said != err.Error() {
			h.said = err.Error()
			h.log.Warn("the TLS files for etcd cannot be used: those that were read before are still in use", "reason", err)
		}
		return h.good
	}
	h.good, h.said = now, ""
	return now
}

// expired reports whether t has a certificate whose time is over.
func expired(t *tls.Config) bool {
	for _, c := range t.Certificates {
		if c.Leaf != nil && time.Now().After(c.Leaf.NotAfter) {
			return true
		}
	}
	return false
}
