package etcd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"weft/lease/internal/clientcert"
)

// resolveTLS honours each file on its own: a CA alone is enough for https, where flannel would ignore it. The
// certificate and its key are read again for each connection, so that they can be replaced in place; the CA
// is read again by Reload. What cannot be used takes the place of nothing.
func (r *resolved) resolveTLS() (err error) {
	files := transport.TLSInfo{CertFile: r.CertFile, KeyFile: r.KeyFile, TrustedCAFile: r.CAFile}
	if r.CAFile == "" && files.Empty() {
		return nil
	}
	r.tls = new(tls.Config) // which says that TLS is wanted, though a file is wrong
	switch {
	case r.KeyFile == "" && r.CertFile != "":
		return fmt.Errorf("etcd certificate %s: its key file is not given", r.CertFile)
	case r.KeyFile != "" && r.CertFile == "":
		return fmt.Errorf("etcd key %s: its certificate file is not given", r.KeyFile)
	}
	c, err := files.ClientConfig()
	switch {
	case err != nil:
		return fmt.Errorf("etcd certificate %s with key %s, CA file %s: %w", r.CertFile, r.KeyFile, r.CAFile, err)
	case r.CAFile != "" && c.RootCAs.Equal(x509.NewCertPool()):
		return fmt.Errorf("etcd CA file %s: no PEM certificate in it", r.CAFile)
	}
	clientcert.Keep(c)
	r.tls = c
	return nil
}
