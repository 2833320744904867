package server_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/embedded"
	"weft/lease/etcd/embedded/server"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

func start(t *testing.T, dir string) *server.Server {
	t.Helper()
	s, err := server.Start(t.Context(), embedded.Config{Dir: dir, Listen: "127.0.0.1:0", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func snapshot(t *testing.T, s *server.Server) (lease.Snapshot, *etcd.Store) {
	t.Helper()
	store, err := etcd.New(etcd.Config{Endpoints: s.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	snap, err := store.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap, store
}

func TestRestartKeepsDataAndIdentity(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	s := start(t, dir)
	first, store := snapshot(t, s)
	sn := lease.Subnets{V4: netip.MustParsePrefix("10.5.1.0/24")}
	if _, err := store.Put(t.Context(), sn, lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.1")}, lease.TTL, 0); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- s.Wait(context.Background()) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("Wait after Close: %v", err)
	}
	second, _ := snapshot(t, start(t, dir))
	if second.ClusterID != first.ClusterID || len(second.Records) != 1 || second.Records[0].Subnets != sn {
		t.Errorf("after a restart: cluster %s, was %s; records %v", second.ClusterID, first.ClusterID, second.Records)
	}
	if other, _ := snapshot(t, start(t, t.TempDir())); other.ClusterID == first.ClusterID {
		t.Error("a new directory has the cluster id of another")
	}
}

// A watch of a store in which nothing happens is answered: not taken for silent after a list, and not after
// a list that was followed by a write.
func TestQuietStoreAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir())
	for writes := range 2 {
		store, err := etcd.New(etcd.Config{Endpoints: s.Endpoints(), PingEvery: 200 * time.Millisecond, PingTimeout: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		if writes > 0 {
			if err := store.CreateConfig(t.Context(), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		listed := make(chan struct{}, 100)
		ended := make(chan error, 1)
		go func() { ended <- store.Watch(ctx, func(lease.Snapshot) { listed <- struct{}{} }, cancel) }()
		<-listed
		for range 4 { // the first three may be answers to the list and to the beginning of the watch
			last := store.Heard()
			await.True(t, "a sign of life", func() bool { return store.Heard().After(last) || ctx.Err() != nil })
		}
		if err := context.Cause(ctx); err != nil {
			t.Errorf("after %d writes: %v", writes, err)
		}
		cancel(nil)
		<-ended
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	busy := start(t, t.TempDir())
	cases := []struct {
		cfg  embedded.Config
		want string
	}{
		{embedded.Config{Dir: dir, Listen: "192.0.2.1:2379"}, "needs TLS (certificate and key) or --embedded-etcd-insecure"},
		{embedded.Config{Dir: dir, Listen: "[::]:2379"}, "needs TLS"},
		{embedded.Config{Dir: dir, Listen: "http://0.0.0.0:2379"}, "needs TLS"},
		{embedded.Config{Dir: dir, Listen: "localhost"}, "want an address and port"},
		{embedded.Config{Dir: dir, Listen: "https://127.0.0.1:1"}, "the scheme is http"},
		{embedded.Config{Dir: dir, CertFile: "x"}, "go together"},
		{embedded.Config{Dir: dir, CertFile: "/none", KeyFile: "/none"}, "no such file"},
		{embedded.Config{Dir: dir, CAFile: "/none"}, "CA file needs"},
		{embedded.Config{}, "no data directory"},
		{embedded.Config{Dir: socketServer(t)}, "another one answers on"},
		{embedded.Config{Dir: filepath.Join(dir, strings.Repeat("long", 30))}, "choose a shorter directory"},
		{embedded.Config{Dir: dir, Listen: strings.TrimPrefix(busy.Endpoints()[0], "http://")}, "in use"},
	}
	for _, c := range cases {
		s, err := server.Start(t.Context(), c.cfg)
		if err == nil {
			_ = s.Close()
			t.Errorf("%+v: started", c.cfg)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestInsecureOnAllAddresses(t *testing.T) {
	t.Parallel()
	s, err := server.Start(t.Context(), embedded.Config{Dir: t.TempDir(), Listen: "0.0.0.0:0", Insecure: true, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if e := s.Endpoints()[0]; !strings.HasPrefix(e, "http://127.0.0.1:") {
		t.Errorf("endpoint %s", e)
	}
	snapshot(t, s)
}

func TestStartGivesUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s, err := server.Start(ctx, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", NoSync: true})
	if err == nil { // it was quicker than the select
		_ = s.Close()
	}
}

func TestWaitEndsWithContext(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx); err != nil {
		t.Error(err)
	}
}

// TestBrokenDataIsAnError has etcd's log say "fatal", over which etcd exits.
func TestBrokenDataIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := start(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	wals, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(wals) == 0 {
		t.Fatalf("no write-ahead log in %s: %v", dir, err)
	}
	for _, f := range wals {
		if err := os.WriteFile(f, bytes.Repeat([]byte("broken"), 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := server.Start(t.Context(), embedded.Config{Dir: dir, Listen: "127.0.0.1:0", NoSync: true})
	if err == nil {
		_ = s.Close()
		t.Fatal("it started on broken data")
	}
	t.Log(err)
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	ca := etcdtest.NewCA(t)
	cert, key := ca.Leaf("server")
	mine, myKey := ca.Leaf("client")
	s, err := server.Start(t.Context(), embedded.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", NoSync: true, CertFile: cert, KeyFile: key, CAFile: ca.File,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, c := range []struct {
		cfg etcd.Config
		ok  bool
	}{
		{etcd.Config{Endpoints: s.Endpoints(), CAFile: ca.File, RequestTimeout: 2 * time.Second}, false},
		{etcd.Config{Endpoints: s.Endpoints(), CAFile: ca.File, CertFile: mine, KeyFile: myKey}, true},
	} {
		store, err := etcd.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = store.Snapshot(t.Context()); (err == nil) != c.ok {
			t.Errorf("with certificate %q: %v", c.cfg.CertFile, err)
		}
		_ = store.Close()
	}
}

// socketServer runs a server with the defaults, and returns its directory.
func socketServer(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	s, err := server.Start(t.Context(), embedded.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return dir
}

// shortDir leaves room for the path of a socket, and others may enter it.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// By default the server is for its own user alone, also in a directory that others can enter, and
// serves on after a crash that left the socket.
func TestDefaultIsASocketOfOurOwn(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	left, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: mkdir(t, dir, "client", 0o777) + "/etcd.sock"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	cfg := embedded.Config{Dir: dir, NoSync: true}
	s, err := server.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if got := s.Endpoints(); len(got) != 1 || got[0] != "unix://"+dir+"/client/etcd.sock" || got[0] != cfg.Endpoint() {
		t.Errorf("endpoints %q", got)
	}
	_, store := snapshot(t, s)
	if err := store.CreateConfig(t.Context(), []byte("{}")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(dir + "/client"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", info, err)
	}
}

func mkdir(t *testing.T, dir, name string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.Mkdir(path, mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}
