package kube

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weft/lease/atomicfile"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
	"weft/test/fakekube"
)

// TestReload: the cluster's authority and our certificate are replaced in place. What the server does not
// match changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	first, second := etcdtest.NewCA(t), etcdtest.NewCA(t)
	var serves atomic.Pointer[tls.Config]
	serve := func(auth *etcdtest.CA, name string) {
		t.Helper()
		pair, err := tls.LoadX509KeyPair(auth.Leaf(name))
		if err != nil {
			t.Fatal(err)
		}
		serves.Store(&tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"},
			ClientAuth: tls.RequestClientCert})
	}
	serve(first, "server1")
	srv := httptest.NewUnstartedServer(s)
	srv.EnableHTTP2 = true
	srv.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return serves.Load(), nil
	}}
	srv.StartTLS()
	t.Cleanup(func() { s.Stop(srv) })

	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := atomicfile.Write(file(name), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	install := func(auth *etcdtest.CA, name string) {
		t.Helper()
		cert, key := auth.Leaf(name)
		for to, from := range map[string]string{"ca.crt": auth.File, "client.crt": cert, "client.key": key} {
			b, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			write(to, string(b))
		}
	}
	install(first, "client1")
	write("kubeconfig",
		fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],
		"clusters":[{"name":"x","cluster":{"server":%q,"certificate-authority":"ca.crt"}}],
		"users":[{"name":"x","user":{"client-certificate":"client.crt","client-key":"client.key"}}]}`, srv.URL))
	cfg := Config{Kubeconfig: file("kubeconfig"), NodeName: "a"}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	works := func() {
		t.Helper()
		if _, err := c.Node(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(want bool, why string) {
		t.Helper()
		changed, err := c.Reload(t.Context(), cfg)
		if changed != want || (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Fatalf("changed %v, %v; want %v, %q", changed, err, want, why)
		}
		works()
	}
	works()
	reload(false, "")
	certificates, others := cfg.Files()
	if len(certificates) != 2 || len(others) != 2 {
		t.Errorf("files %q and %q", certificates, others)
	}
	write("ca.crt", "junk")
	reload(false, "certificate")
	for _, name := range []string{"client.crt", "client.key"} { // which the library reads again after a second
		write(name, "junk")
		for began := time.Now(); time.Since(began) < 1200*time.Millisecond; works() {
			c.conn.Load().hangUp()
		}
	}
	install(second, "client2")
	reload(false, "connection")
	install(first, "client3")
	reload(true, "")

	install(second, "client4") // the server's own follows
	serve(second, "server2")
	c.conn.Load().hangUp()
	if changed, err := c.Reload(t.Context(), cfg); err != nil || !changed {
		t.Fatal(changed, err)
	}
	works()
}

// TestARefusalEndsTheConnection has the API server refuse our credentials: with a new connection the files
// with them are read again, since they may have been replaced.
func TestARefusalEndsTheConnection(t *testing.T) {
	t.Parallel()
	s := fakekube.New(t)
	s.Put(plain("a", "10.244.1.0/24"))
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &counted{Listener: inner}
	s.Serve(l)
	s.Break(http.StatusUnauthorized)
	tt := newTester(t, s, Config{APIURL: "http://" + l.Addr().String(), NodeName: "a"}, nil)
	during(t, tt.Run)
	await.NoDiff(t, func() string {
		if n := l.accepted.Load(); n < 8 { // a connection that is used again would do
			return fmt.Sprintf("%d connections for %d questions", n, len(s.Lists()))
		}
		return ""
	})
}

// counted counts connections.
type counted struct {
	net.Listener
	accepted atomic.Int64
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}
