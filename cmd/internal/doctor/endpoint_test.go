package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"weft/test/ports"
)

// signed makes a certificate for 127.0.0.1 that is valid until ends, and the pool that trusts it.
func signed(t *testing.T, names []string, ends time.Time) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"},
		NotBefore: ends.AddDate(-1, 0, 0), NotAfter: ends,
		IsCA: true, BasicConstraintsValid: true, DNSNames: names}
	if names == nil {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// A store that does not serve this node is asked over real sockets, and what is wrong is named in one
// sentence without the words of a library.
func TestEndpointsSayWhatIsWrong(t *testing.T) {
	good, trusted := signed(t, nil, time.Now().AddDate(0, 6, 0))
	expired, trustedExpired := signed(t, nil, time.Now().Add(-time.Hour))
	other, trustedOther := signed(t, []string{"etcd.example"}, time.Now().AddDate(0, 6, 0))
	serve := func(c *tls.Config) string {
		s := httptest.NewUnstartedServer(nil)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		if t.Cleanup(s.Close); c == nil {
			s.Start()
		} else {
			s.TLS = c
			s.StartTLS()
		}
		return s.Listener.Addr().String()
	}
	with := func(pool *x509.CertPool) *tls.Config {
		return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	server := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	plain := serve(nil)
	secure := serve(server(good))
	nobody := ports.Loopback(t).String()
	curt, err := net.Listen("tcp", "127.0.0.1:0") // it says nothing to who begins with TLS
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = curt.Close() })
	go func() {
		for {
			c, err := curt.Accept()
			if err != nil {
				return
			}
			var b [4096]byte
			if n, err := c.Read(b[:]); err == nil && n > 0 && b[0] == 'G' {
				_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
			}
			_ = c.Close()
		}
	}()
	for _, tt := range []struct {
		name, url string
		config    *tls.Config
		want      string // "" if it answers
	}{
		{"http", "http://" + plain, nil, ""},
		{"https", "https://" + secure, with(trusted), ""},
		{"nobody", "http://" + nobody, nil, "connection"},
		{"http for https", "http://" + secure, nil, "speaks"},
		{"https for http", "https://" + plain, with(trusted), "speak"},
		{"https for http, of one that says nothing", "https://" + curt.Addr().String(), with(trusted), "speak"},
		{"foreign CA", "https://" + secure, with(trustedOther), "authority"},
		{"expired", "https://" + serve(server(expired)), with(trustedExpired), "certificate"},
		{"another name", "https://" + serve(server(other)), with(trustedOther), "other names"},
		{"no client certificate", "https://" +
			serve(&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}),
			with(trusted), "certificate"},
		{"no such name", "http://no.such.name.invalid:2379", nil, "resolve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := askEndpoint(t.Context(), tt.url, tt.config)
			if tt.want == "" {
				if e.Err != nil || !e.Clock || e.Ahead > 5*time.Second || e.Ahead < -5*time.Second ||
					e.Addrs[0] != netip.MustParseAddr("127.0.0.1") || (e.Shown == nil) == (tt.config != nil) {
					t.Errorf("%+v", e)
				}
				return
			}
			if e.Err == nil {
				t.Fatalf("%+v", e)
			}
			f := healthy(t)
			f.Store.Endpoints = []Endpoint{e}
			x := checkEndpoints(f)[0]
			if !strings.Contains(x.Found, tt.want) || x.Remedy == "" || strings.Contains(x.String(), "rpc error") {
				t.Errorf("%q, of %v", x, e.Err)
			}
		})
	}
}

// What an endpoint did is in what was found, and no words of Go's library are a remedy.
func TestSilentEndpointsSayWhatIsWrong(t *testing.T) {
	for err, want := range map[error]string{
		context.DeadlineExceeded:     "does not answer in time",
		syscall.ECONNREFUSED:         "nothing listens there",
		errors.New("a strange word"): "a strange word",
	} {
		f := healthy(t)
		f.Store.Endpoints = []Endpoint{{URL: "http://192.0.2.9:2379",
			Err: &url.Error{Op: "Get", URL: "http://192.0.2.9:2379/version", Err: err}}}
		x := checkEndpoints(f)[0]
		if !strings.Contains(x.Found, want) || strings.Contains(x.Remedy, want) ||
			strings.Contains(x.String(), "Get ") {
			t.Errorf("%v: %+v", err, x)
		}
	}
}

// TestAlarmIsTold reads what etcd 3.4 and later say at /health, and what others do.
func TestAlarmIsTold(t *testing.T) {
	for body, want := range map[string]string{
		`{"health":"true","reason":""}`:               "",
		`{"health":"false","reason":"ALARM NOSPACE"}`: "ALARM NOSPACE",
		`{"health":"false"}`:                          "no reason given",
		"ok":                                          "",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/health" {
				_, _ = w.Write([]byte(body))
			}
		}))
		e := askEndpoint(t.Context(), s.URL, nil)
		s.Close()
		if e.Err != nil || e.Alarm != want {
			t.Errorf("%s: %q, %v", body, e.Alarm, e.Err)
		}
		f := healthy(t)
		f.Store.Endpoints = []Endpoint{e}
		if v := checkStoreRead(f)[0].Verdict; (v == Fault) != (want == "ALARM NOSPACE") ||
			(v == Warning) != (want == "no reason given") {
			t.Errorf("%s: %s", body, v)
		}
	}
}
