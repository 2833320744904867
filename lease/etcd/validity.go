package etcd

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// Validity returns between which times the certificate of those in text, in PEM, is good that lasts longest,
// since the others are former ones. An authority counts only in a file of authorities: behind a node's own
// certificate it lasts longer than that. ok is false if there is no certificate.
func Validity(text []byte) (from, to time.Time, ok bool) {
	authority := true
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return from, to, ok
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && (!ok || authority && !c.IsCA || authority == c.IsCA && c.NotAfter.After(to)) {
			from, to, ok, authority = c.NotBefore, c.NotAfter, true, c.IsCA
		}
	}
}
