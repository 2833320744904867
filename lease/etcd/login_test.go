package etcd_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/etcd/etcdtest"
	"weft/test/await"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	auth := etcdtest.NewCA(t)
	cert, key := auth.Leaf("server")
	mine, myKey := auth.Leaf("client")
	plain := etcdtest.StartWith(t, etcdtest.Options{Args: []string{"--cert-file=" + cert, "--key-file=" + key}})
	mutual := etcdtest.StartWith(t, etcdtest.Options{Args: []string{
		"--cert-file=" + cert, "--key-file=" + key, "--client-cert-auth", "--trusted-ca-file=" + auth.File,
	}})
	old, oldKey := auth.Expired("expired")
	expired := etcdtest.StartWith(t,
		etcdtest.Options{Args: []string{"--cert-file=" + old, "--key-file=" + oldKey}})
	clear := etcdtest.Start(t)
	serves := func(name, endpoint string, change func(*etcd.Config)) {
		t.Helper()
		if _, err := newStore(t, endpoint, change).Snapshot(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A request ends before the first handshake does when the machine is busy, and so several may be needed
	// until one says why. All are waited for side by side.
	var refused sync.WaitGroup
	refuses := func(name, endpoint, why string, change func(*etcd.Config)) {
		t.Helper()
		s := newStore(t, endpoint, change, func(c *etcd.Config) { c.RequestTimeout = 2 * time.Second })
		refused.Go(func() {
			until := time.Now().Add(await.Patience)
			for {
				_, err := s.Snapshot(t.Context())
				if err == nil {
					t.Errorf("%s: it serves", name)
				}
				if err == nil || strings.Contains(err.Error(), why) && !strings.Contains(err.Error(), "desc =") {
					return
				}
				if time.Now().After(until) {
					t.Errorf("%s: %v, want %q", name, err, why)
					return
				}
			}
		})
	}
	ca := func(c *etcd.Config) { c.CAFile = auth.File }
	none := func(*etcd.Config) {}
	serves("CA only", plain.Endpoint(), ca)
	serves("CA only, no scheme", strings.TrimPrefix(plain.Endpoint(), "https://"), ca)
	other := etcdtest.NewCA(t)
	foreign, foreignKey := other.Leaf("foreign")
	const unknown = "CA"
	refuses("system's CAs", plain.Endpoint(), unknown, none)
	refuses("another CA", plain.Endpoint(), unknown, func(c *etcd.Config) { c.CAFile = other.File })
	refuses("the server's has expired", expired.Endpoint(), "20", ca)
	refuses("another name", strings.Replace(plain.Endpoint(), "127.0.0.1", "localhost", 1), "certificate", ca)
	refuses("http for https", strings.Replace(plain.Endpoint(), "https:", "http:", 1), "https://", none)
	refuses("https for http", strings.Replace(clear.Endpoint(), "http:", "https:", 1), "speak", ca)
	refuses("no client certificate", mutual.Endpoint(), "certificate", ca)
	refuses("a foreign client certificate", mutual.Endpoint(), foreign, func(c *etcd.Config) {
		c.CAFile, c.CertFile, c.KeyFile = auth.File, foreign, foreignKey
	})
	refuses("an expired client certificate", mutual.Endpoint(), old, func(c *etcd.Config) {
		c.CAFile, c.CertFile, c.KeyFile = auth.File, old, oldKey
	})
	both := func(c *etcd.Config) { c.CAFile, c.CertFile, c.KeyFile = auth.File, mine, myKey }
	serves("client certificate", mutual.Endpoint(), both)
	refused.Wait()
	s := newStore(t, mutual.Endpoint(), both)
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	_, _, lost := w.snapshot()
	mutual.Kill()
	w.lostAfter(t, lost)
	mutual.Start()
	put(t, s, 2, lease.TTL, 0)
	w.records(t, 1, 2)
}

const rolePrefix = "/coreos.com/network"

// logins turns on srv's authentication, and makes a user node whose role has no more than flannel needs.
func logins(t *testing.T, srv *etcdtest.Server) {
	t.Helper()
	c, ctx := srv.Client(), t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.UserAdd(ctx, "root", "rootpw"))
	must(c.UserGrantRole(ctx, "root", "root"))
	must(c.RoleAdd(ctx, "node"))
	must(c.RoleGrantPermission(ctx, "node", rolePrefix+"/config", "", 0))
	must(c.RoleGrantPermission(ctx, "node", rolePrefix+"/subnets", rolePrefix+"/subnett", 2))
	must(c.UserAdd(ctx, "node", "nodepw"))
	must(c.UserGrantRole(ctx, "node", "node"))
	must(c.AuthEnable(ctx))
}

func TestLogin(t *testing.T) {
	t.Parallel()
	srv, ctx := etcdtest.Start(t), t.Context()
	logins(t, srv)
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte("nodepw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	login := func(c *etcd.Config) { c.Username, c.PasswordFile = "node", file }
	_, err := newStore(t, srv.Endpoint()).Snapshot(ctx)
	if err == nil {
		t.Error("a snapshot without login")
	}
	wrong := func(c *etcd.Config) { c.Username, c.Password = "node", etcd.NewSecret("wrongpw") }
	_, err = newStore(t, srv.Endpoint(), wrong).Snapshot(ctx)
	if !errors.Is(err, rpctypes.ErrAuthFailed) || strings.Contains(err.Error(), "wrongpw") {
		t.Errorf("wrong password: %v", err)
	}
	s := newStore(t, srv.Endpoint(), login, impatient)
	w := watch(t, s)
	put(t, s, 1, lease.TTL, 0)
	w.records(t, 1)
	if err := s.CreateConfig(ctx, []byte("{}")); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("config without permission: %v", err)
	}
	if err := s.Tell(ctx, question("b", "p1")); !errors.Is(err, lease.ErrMute) {
		t.Errorf("message without permission: %v", err)
	}
	// A restart voids every token.
	_, _, lost := w.snapshot()
	srv.Kill()
	w.lostAfter(t, lost)
	fresh := newStore(t, srv.Endpoint(), login, impatient) // New does not need an etcd that answers
	w2 := watch(t, fresh)
	w2.lostAfter(t, 0)
	srv.Start()
	await.OK(t, "a write after the restart", func() error {
		_, err := s.Put(t.Context(), subnet(2), attrs(2), lease.TTL, 0)
		if errors.Is(err, lease.ErrConflict) { // an earlier one was carried out, and its answer came too late
			return nil
		}
		return err
	})
	w.records(t, 1, 2)
	w2.records(t, 1, 2)
}

// TestAForgottenToken restarts etcd after it has put a login on the disk for good, so that it does not play
// it again and knows its token no more. Debian 12's etcd, 3.4, refuses a login that carries such a token.
func TestAForgottenToken(t *testing.T) {
	t.Parallel()
	srv := etcdtest.StartWith(t, etcdtest.Options{Args: []string{"--backend-batch-limit=1"}})
	c, ctx := srv.Client(), t.Context()
	_, err := c.UserAdd(ctx, "root", "rootpw")
	for _, next := range []func() error{
		func() error { _, err := c.RoleAdd(ctx, "root"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err = errors.Join(err, next()); err != nil {
			t.Fatal(err)
		}
	}
	s := newStore(t, srv.Endpoint(), impatient, func(c *etcd.Config) {
		c.Username, c.Password = "root", etcd.NewSecret("rootpw")
	})
	for i := range 3 {
		put(t, s, i+1, lease.TTL, 0)
	}
	srv.Kill()
	srv.Start()
	put(t, s, 4, lease.TTL, 0)
}
