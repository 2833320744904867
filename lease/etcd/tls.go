package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// resolveTLS honours each file on its own: a CA alone is enough for https, where
// flannel would ignore it.
func (r *resolved) resolveTLS() error {
	if r.CAFile == "" && r.CertFile == "" && r.KeyFile == "" {
		return nil
	}
	r.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	return errors.Join(r.loadCA(), r.loadPair())
}

func (r *resolved) loadCA() error {
	if r.CAFile == "" {
		return nil
	}
	pem, err := os.ReadFile(r.CAFile)
	if err != nil {
		return fmt.Errorf("etcd CA file: %w", err)
	}
	r.tls.RootCAs = x509.NewCertPool()
	if !r.tls.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("etcd CA file %s: no PEM certificate in it", r.CAFile)
	}
	return nil
}

func (r *resolved) loadPair() error {
	switch {
	case r.CertFile == "" && r.KeyFile == "":
		return nil
	case r.KeyFile == "":
		return fmt.Errorf("etcd certificate %s: its key file is not given", r.CertFile)
	case r.CertFile == "":
		return fmt.Errorf("etcd key %s: its certificate file is not given", r.KeyFile)
	}
	cert, key := r.CertFile, r.KeyFile
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("etcd certificate %s with key %s: %w", cert, key, err)
	}
	r.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("etcd certificate %s with key %s: %w", cert, key, err)
		}
		return &pair, nil
	}
	return nil
}
