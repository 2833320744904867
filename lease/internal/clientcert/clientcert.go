// Package clientcert has TLS connections outlive the replacement of a client certificate's files, which
// nobody does in one moment.
package clientcert

import (
	"crypto/tls"
	"sync/atomic"
)

// Keep has c's client certificate be the last that its files had while they cannot be used. They are read at
// once for that.
func Keep(c *tls.Config) {
	read := c.GetClientCertificate
	if read == nil {
		return
	}
	var last atomic.Pointer[tls.Certificate]
	c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := read(r)
		if err == nil {
			last.Store(cert)
		} else if good := last.Load(); good != nil {
			return good, nil
		}
		return cert, err
	}
	_, _ = c.GetClientCertificate(new(tls.CertificateRequestInfo)) // a handshake gets the error
}
