package etcd_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/atomicfile"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// copyFile puts the contents of from at to, at once, as who rotates certificates should.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = atomicfile.Write(to, b)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestRotatedCertificates: a client certificate and a CA bundle are replaced in place, first beside a server
// that goes on, then with one that knows only the new CA. Only the CA needs a Reload, and no reload loses the
// watch.
func TestRotatedCertificates(t *testing.T) {
	t.Parallel()
	first, second := etcdtest.NewCA(t), etcdtest.NewCA(t)
	dir := t.TempDir()
	ca, cert, key := dir+"/ca.pem", dir+"/client.pem", dir+"/client.key"
	serverCA, serverCert, serverKey := dir+"/server-ca.pem", dir+"/server.pem", dir+"/server.key"
	install := func(auth *etcdtest.CA, name, ca, cert, key string) {
		t.Helper()
		c, k := auth.Leaf(name)
		copyFile(t, auth.File, ca)
		copyFile(t, k, key)
		copyFile(t, c, cert)
	}
	install(first, "server1", serverCA, serverCert, serverKey)
	install(first, "client1", ca, cert, key)
	srv := etcdtest.StartWith(t, etcdtest.Options{Args: []string{
		"--cert-file=" + serverCert, "--key-file=" + serverKey, "--client-cert-auth",
		"--trusted-ca-file=" + serverCA,
	}})
	var cfg etcd.Config
	s := newStore(t, srv.Endpoint(), func(c *etcd.Config) {
		c.CAFile, c.CertFile, c.KeyFile = ca, cert, key
		c.RequestTimeout = 5 * time.Second // requests on the former connection go on so long after a reload
		cfg = *c
	})
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	_, _, lost := w.snapshot()
	reload := func(want bool, why string) {
		t.Helper()
		c := cfg
		if why != "" { // a server that refuses is asked for that long
			c.RequestTimeout = 2 * time.Second
		}
		changed, err := s.Reload(t.Context(), c)
		if changed != want || (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Fatalf("changed %v, %v; want %v, %q", changed, err, want, why)
		}
	}
	reload(false, "")
	before, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}

	// What cannot be used changes nothing: neither junk, nor what the server refuses, nor what has expired.
	write := func(file, text string) {
		t.Helper()
		if err := atomicfile.Write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(cert, "junk")
	reload(false, "etcd certificate "+cert)
	put(t, s, 2, lease.TTL, 0)
	install(second, "stranger", dir+"/other-ca", cert, key)
	reload(false, "connection")
	old, oldKey := first.Expired("old")
	copyFile(t, oldKey, key)
	copyFile(t, old, cert)
	reload(false, "connection")
	put(t, s, 3, lease.TTL, 0)
	w.records(t, 1, 2, 3)

	// Another certificate of the same CA is taken up, with the watch.
	install(first, "client2", ca, cert, key)
	if b, err := os.ReadFile(cert); err != nil || string(b) == string(before) {
		t.Fatalf("the certificate is the same: %v", err)
	}
	reload(true, "")
	reload(false, "")
	put(t, s, 4, lease.TTL, 0)
	w.records(t, 1, 2, 3, 4)
	if _, _, now := w.snapshot(); now != lost {
		t.Errorf("the watch was lost %d times over reloads", now-lost)
	}

	// The client's certificate is replaced while the server is away: nobody has to say so.
	srv.Kill()
	w.lostAfter(t, lost)
	install(first, "client2b", ca, cert, key)
	srv.Start()
	put(t, s, 6, lease.TTL, 0)
	w.records(t, 1, 2, 3, 4, 6)
	_, _, lost = w.snapshot()

	// Of files that are half-written when a connection is made, what they had before counts.
	all := []int{1, 2, 3, 4, 6}
	for i, file := range []string{cert, key, ca} {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for j, junk := range []string{"", string(good[:len(good)/2])} {
			write(file, junk)
			srv.Kill()
			w.lostAfter(t, lost)
			srv.Start()
			n := 7 + 2*i + j
			put(t, s, n, lease.TTL, 0)
			all = append(all, n)
			w.records(t, all...)
			reload(false, file)
			_, _, lost = w.snapshot()
		}
		write(file, string(good))
	}

	// The authority changes on both sides.
	srv.Kill()
	w.lostAfter(t, lost)
	install(second, "server2", serverCA, serverCert, serverKey)
	install(second, "client3", ca, cert, key)
	srv.Start()
	reload(true, "")
	until := time.Now().Add(await.Patience)
	for {
		if _, err = s.Snapshot(t.Context()); err == nil || time.Now().After(until) {
			break
		}
	}
	if err != nil {
		t.Fatal("with both rotated: ", err)
	}
	put(t, s, 5, lease.TTL, 0)
	w.records(t, append(all, 5)...)
}

// TestReloadBeforeEtcdIsThere: the first connection is made with what the last reload said.
func TestReloadBeforeEtcdIsThere(t *testing.T) {
	t.Parallel()
	srv := etcdtest.Start(t)
	s := newStore(t, "http://127.0.0.1:1", func(c *etcd.Config) { c.RequestTimeout = 300 * time.Millisecond })
	if _, err := s.Snapshot(t.Context()); err == nil {
		t.Fatal("there is an etcd at port 1")
	}
	cfg := etcd.Config{Endpoints: []string{srv.Endpoint()}}
	if changed, err := s.Reload(t.Context(), cfg); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if _, err := s.Snapshot(t.Context()); err != nil {
		t.Error(err)
	}
	if got := s.Endpoints(); len(got) != 1 || got[0] != srv.Endpoint() {
		t.Error(got)
	}
	cfg.Prefix = "/elsewhere"
	if _, err := s.Reload(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "/elsewhere") {
		t.Error(err)
	}
}
