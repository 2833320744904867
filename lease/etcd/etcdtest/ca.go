package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates into files that live as long as the test.
type CA struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// File holds the certificate of the CA.
	File string
}

// NewCA makes a certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	c := &CA{t: t, dir: t.TempDir()}
	c.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	c.File, _ = c.sign("ca", c.cert)
	return c
}

// Leaf makes a certificate for both sides on 127.0.0.1.
func (c *CA) Leaf(name string) (cert, key string) {
	c.t.Helper()
	return c.leaf(name, time.Now().Add(time.Hour))
}

// LeafAt makes one on other addresses.
func (c *CA) LeafAt(name string, at ...net.IP) (cert, key string) {
	c.t.Helper()
	return c.leaf(name, time.Now().Add(time.Hour), at...)
}

// Expired makes one that was good until a minute ago.
func (c *CA) Expired(name string) (cert, key string) {
	c.t.Helper()
	return c.leaf(name, time.Now().Add(-time.Minute))
}

func (c *CA) leaf(name string, ends time.Time, at ...net.IP) (cert, key string) {
	c.t.Helper()
	if len(at) == 0 {
		at = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	return c.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: ends,
		IPAddresses: at,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (c *CA) sign(name string, tmpl *x509.Certificate) (certFile, keyFile string) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.key == nil {
		c.key = key // the CA signs itself
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	write := func(suffix, kind string, b []byte) string {
		p := filepath.Join(c.dir, name+suffix)
		if err := os.WriteFile(p, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			c.t.Fatal(err)
		}
		return p
	}
	return write(".crt", "CERTIFICATE", der), write(".key", "PRIVATE KEY", keyDER)
}
