package etcdchild_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/weftd/internal/etcdchild"
	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/embedded"
	"weft/lease/etcd/embedded/server"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

// asEtcd is a variable that makes the test binary weft-etcd. The names of variables that the child gets begin
// with GO.
const asEtcd = "GO_WEFT_TEST_BE_ETCD"

func TestMain(m *testing.M) {
	if os.Getenv(asEtcd) != "" {
		if server.Process(os.Args[1:], os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := os.Setenv(asEtcd, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func tryStart(t *testing.T, c embedded.Config) (*etcdchild.Process, error) {
	t.Helper()
	c.NoSync, c.Logger = true, slog.New(slog.DiscardHandler)
	p, err := etcdchild.Start(t.Context(), "/proc/self/exe", c)
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

func start(t *testing.T, c embedded.Config) *etcdchild.Process {
	t.Helper()
	p, err := tryStart(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func snapshot(t *testing.T, s *etcdchild.Process) (lease.Snapshot, *etcd.Store) {
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
	c := embedded.Config{Dir: filepath.Join(t.TempDir(), "a", "b"), Listen: "127.0.0.1:0"}
	p := start(t, c)
	first, store := snapshot(t, p)
	sn := lease.Subnets{V4: netip.MustParsePrefix("10.5.1.0/24")}
	if _, err := store.Put(t.Context(), sn, lease.Attrs{PublicIP: netip.MustParseAddr("192.0.2.1")}, lease.TTL,
		0); err != nil {
		t.Fatal(err)
	}
	p.Close()
	second, _ := snapshot(t, start(t, c))
	if second.ClusterID != first.ClusterID || len(second.Records) != 1 || second.Records[0].Subnets != sn {
		t.Errorf("after a restart: cluster %s, was %s; records %v", second.ClusterID, first.ClusterID,
			second.Records)
	}
	if other, _ := snapshot(t, start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})); other.ClusterID == first.ClusterID {
		t.Error("a new directory has the cluster id of another")
	}
}

// A watch of a store in which nothing happens is answered: not taken for silent after a list, and not after
// a list that was followed by a write.
func TestQuietStoreAnswers(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	for writes := range 2 {
		store, err := etcd.New(etcd.Config{
			Endpoints: s.Endpoints(), PingEvery: 200 * time.Millisecond, PingTimeout: 10 * time.Second,
		})
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
			last := store.Heard().At
			await.True(t, "a sign of life", func() bool { return store.Heard().At.After(last) || ctx.Err() != nil })
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
	dir := shortDir(t)
	busy := start(t, embedded.Config{Dir: dir})
	for _, c := range []embedded.Config{{Dir: dir}, {Dir: t.TempDir(), CertFile: "/none", KeyFile: "/none"},
		{}} {
		if _, err := tryStart(t, c); err == nil {
			t.Errorf("%+v: started", c)
		}
	}
	snapshot(t, busy)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := embedded.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	if p, err := etcdchild.Start(ctx, "/proc/self/exe", c); err == nil { // it was quicker than the select
		p.Close()
	}
}

func TestInsecureOnAllAddresses(t *testing.T) {
	t.Parallel()
	p := start(t, embedded.Config{Dir: t.TempDir(), Listen: "0.0.0.0:0", Insecure: true})
	if e := p.Endpoints()[0]; !strings.HasPrefix(e, "http://127.0.0.1:") {
		t.Errorf("endpoint %s", e)
	}
	snapshot(t, p)
}

func TestTLSWithClientCertificates(t *testing.T) {
	t.Parallel()
	ca := etcdtest.NewCA(t)
	cert, key := ca.Leaf("server")
	mine, myKey := ca.Leaf("client")
	s := start(t, embedded.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", CertFile: cert, KeyFile: key, CAFile: ca.File,
	})
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
	left, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: mkdir(t, dir, "client", 0o777) +
		"/etcd.sock"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	cfg := embedded.Config{Dir: dir}
	s := start(t, cfg)
	if got := s.Endpoints(); len(got) != 1 || got[0] != "unix://"+dir+"/client/etcd.sock" ||
		got[0] != cfg.Endpoint() {
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
