package routecontrol

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
)

// renewed is what is made of some files, anew for each use: certificates and tokens are renewed on
// disk while a controller runs, and one that went on with the old ones would hear no node any more. It is
// safe for concurrent use.
type renewed[T any] struct {
	what string
	make func() (T, error)

	mu    sync.Mutex
	now   T
	fault string // of the latest try
}

// get returns what the files make now, or what they made last while they make nothing: they may be just being
// written.
func (r *renewed[T]) get(log *slog.Logger) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, err := r.make()
	if err == nil {
		r.now, r.fault = v, ""
		return v
	}
	if r.fault != err.Error() {
		r.fault = err.Error()
		log.Error("what was renewed cannot be used: what there was before serves on", "what", r.what, "error", err)
	}
	return r.now
}

// readToken returns the first line of a file.
func readToken(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("--token-file: the first line of %s is empty", file)
	}
	return line, nil
}

// tlsConfig makes a config of PEM files.
func (s *Settings) tlsConfig() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return nil, fmt.Errorf("--cert, --key: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair},
		NextProtos: []string{"h2", "http/1.1"}}
	if s.clientCA == "" {
		return c, nil
	}
	b, err := os.ReadFile(s.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	c.ClientCAs, c.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !c.ClientCAs.AppendCertsFromPEM(b) {
		return nil, errors.New("--client-ca: " + s.clientCA + " has no certificate in PEM")
	}
	return c, nil
}
