package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"weft/lease/belief"
	"weft/test/await"
)

// withoutLowPorts has cmd run without the right to bind ports below 1024.
func withoutLowPorts(t *testing.T, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatalf("%v: apt-get install util-linux", err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = setpriv
	cmd.Args = append([]string{"setpriv", "--inh-caps=-net_bind_service", "--bounding-set=-net_bind_service",
		exe}, cmd.Args[1:]...)
	return cmd
}

// client is one of the etcd at an address in h's namespace.
func (h *host) client(t *testing.T, at string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + at}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn,
			error) {
			return h.ns.Dial(ctx, "tcp", addr)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A network configuration whose port weftd cannot have changes nothing: neither the record nor the subnet
// file, whether it comes with a reload or is there at the start, and --check names the port. When there is
// another one it is taken up.
func TestAPortThatCannotBeHadIsAnnouncedNowhere(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	etcd := a.client(t, "192.0.2.1:2379")
	put := func(backend string) (config string) {
		t.Helper()
		config = `{"Network":"10.42.0.0/16","Backend":` + backend + `}`
		if _, err := etcd.Put(t.Context(), "/coreos.com/network/config", config); err != nil {
			t.Fatal(err)
		}
		return config
	}
	records := func() (out string) {
		t.Helper()
		r, err := etcd.Get(t.Context(), "/coreos.com/network/subnets/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range r.Kvs {
			out += fmt.Sprintln(string(kv.Key), kv.CreateRevision, kv.ModRevision)
		}
		return out
	}
	begin := func() {
		t.Helper()
		b.cmd = withoutLowPorts(t, b.command())
		b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
		if err := b.ns.Start(b.cmd); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	b.awaitReady(t)
	file, err := os.ReadFile(b.file())
	if err != nil {
		t.Fatal(err)
	}
	before := records()
	var taken net.PacketConn
	if err := b.ns.Do(func() (err error) { taken, err = net.ListenPacket("udp", "192.0.2.2:8300"); return err }); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for backend, why := range map[string]error{
		`{"Type":"udp","Port":22,"MTU":1400}`:   syscall.EACCES,
		`{"Type":"vxlan","Port":22,"MTU":1400}`: syscall.EACCES,
		`{"Type":"wireguard","ListenPort":443}`: syscall.EACCES,
		`{"Type":"udp","Port":8300,"MTU":1400}`: syscall.EADDRINUSE,
	} {
		config := put(backend)
		await.OK(t, "a reload refuses "+backend, func() error {
			changed, _, faults, _ := b.reload(t)
			if changed != "" || !strings.Contains(faults, why.Error()) {
				return fmt.Errorf("changed %q, faults %q", changed, faults)
			}
			return nil
		})
		if s, err := b.status(t); err != nil || s.Backend.Port != 8285 || !s.Backend.InPlace ||
			s.Backend.MTU != 1472 {
			t.Errorf("%s: %v, %+v", backend, err, s.Backend)
		}
		if now, err := os.ReadFile(b.file()); err != nil || string(now) != string(file) || records() != before {
			t.Errorf("%s: %v, the subnet file is\n%s\nand the records are\n%s\nand were\n%s", backend, err, now,
				records(), before)
		}
		netconf := filepath.Join(b.dir, "check.json")
		if err := os.WriteFile(netconf, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		check := withoutLowPorts(t, b.command("--check", "--offline", "--net-config-path="+netconf))
		var out strings.Builder
		check.Stdout = &out
		if err := b.ns.Run(check); (err != nil) != errors.Is(why, syscall.EACCES) ||
			strings.Contains(out.String(), why.Error()) != (err != nil) {
			t.Errorf("--check of %s: %v\n%s", backend, err, &out)
		}
	}
	b.reaches(t, a)

	// At the start, of a weftd that knows no other configuration.
	b.stop(t, syscall.SIGTERM)
	if err := errors.Join(os.Remove(b.file()), os.Remove(filepath.Join(b.dir, "cache", belief.CacheFile))); err != nil {
		t.Fatal(err)
	}
	put(`{"Type":"udp","Port":22}`)
	begin()
	await.OK(t, "weftd says that the port cannot be had", func() error {
		s, err := b.status(t)
		if err == nil && !strings.Contains(fmt.Sprint(s.NotReady), syscall.EACCES.Error()) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
	if _, err := os.Stat(b.file()); !errors.Is(err, fs.ErrNotExist) || records() != before {
		t.Errorf("the subnet file: %v; records\n%s\nwere\n%s", err, records(), before)
	}
	put(`{"Type":"udp"}`)
	b.awaitReady(t)
	b.reaches(t, a)

	// A weftd that is not kept from it keeps the right, whatever else it gives up, and serves such a port.
	put(`{"Type":"udp","Port":53}`)
	if changed, _, faults, _ := a.reload(t); changed == "" || faults != "" {
		t.Errorf("changed %q, faults %q", changed, faults)
	}
	await.OK(t, "port 53 is in use", func() error {
		s, err := a.status(t)
		if err == nil && (s.Backend.Port != 53 || !s.Backend.InPlace) {
			err = fmt.Errorf("port %d, in place %v", s.Backend.Port, s.Backend.InPlace)
		}
		return err
	})
}
