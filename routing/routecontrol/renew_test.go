package routecontrol

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"weft/test/await"
)

// output is what a logger writes, safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// certificate makes one of 127.0.0.1 with that serial number, which is its own authority, in PEM.
func certificate(t *testing.T, serial int64) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// Certificate, authorities and token that are renewed on disk count at once; what cannot be used does not,
// and what there was serves on.
func TestFilesAreReadAnew(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(serial int64) (cert, key []byte) {
		cert, key = certificate(t, serial)
		write("cert", cert)
		write("key", key)
		write("ca", cert)
		write("token", fmt.Appendf(nil, "secret%d\n", serial))
		return cert, key
	}
	cert, key := renew(1)
	var s Settings
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	s.Declare(fs)
	if err := fs.Parse(strings.Fields(strings.ReplaceAll("--networks=10.5.0.0/16 --listen=127.0.0.1:0 "+
		"--cert=D/cert --key=D/key --client-ca=D/ca --token-file=D/token", "D", dir))); err != nil {
		t.Fatal(err)
	}
	o, err := s.Options()
	if err != nil {
		t.Fatal(err)
	}
	out := &output{}
	o.Programmer, o.Logger = &table{}, slog.New(slog.NewTextHandler(out, nil))
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- s.Serve(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	var address string
	await.OK(t, "it serves", func() error {
		m := regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(out.String())
		if m == nil {
			return errors.New(out.String())
		}
		address = m[1]
		return nil
	})
	// ask asks on a connection of its own, and returns the status and the serial number that was shown.
	ask := func(cert, key []byte, token string) string {
		t.Helper()
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		// Whoever it shows is taken, and compared.
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
			Certificates: []tls.Certificate{pair}}}
		defer tr.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/v1/routes", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := (&http.Client{Transport: tr, Timeout: await.Patience}).Do(req)
		if err != nil {
			return "no answer"
		}
		_ = resp.Body.Close()
		return fmt.Sprint(resp.StatusCode, " of ", resp.TLS.PeerCertificates[0].SerialNumber)
	}
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	expect(ask(cert, key, "secret1"), "200 of 1")
	newCert, newKey := renew(2)
	expect(ask(newCert, newKey, "secret2"), "200 of 2")
	expect(ask(newCert, newKey, "secret1"), "401 of 2")
	expect(ask(cert, key, "secret2"), "no answer") // another authority's
	for _, name := range []string{"key", "token"} {
		write(name, nil)
	}
	expect(ask(newCert, newKey, "secret2"), "200 of 2")
	for _, what := range []string{"what=certificate", "what=token"} {
		if !strings.Contains(out.String(), what) {
			t.Errorf("nothing was said of %s: %s", what, out.String())
		}
	}
	last, lastKey := renew(3)
	expect(ask(last, lastKey, "secret3"), "200 of 3")
}
