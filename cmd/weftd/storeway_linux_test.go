package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/test/await"
)

// farStore is an address of the store's host within the overlay's network, and
// cutOff is the message about it.
const (
	farStore = "10.42.200.5"
	cutOff   = "Network 10.42.0.0/16 contains the store 10.42.200.5, which is reached via 192.0.2.1 on eth0"
)

// farPair is a pair where b reaches a's store at farStore by its default gateway, a.
func farPair(t *testing.T) (a, b *host) {
	t.Helper()
	a, b = pair(t)
	netconf := `{"Network":"10.42.0.0/16","SubnetMax":"10.42.99.0"}` // no lease contains the store
	if err := os.WriteFile(filepath.Join(a.dir, "net.json"), []byte(netconf), 0o600); err != nil {
		t.Fatal(err)
	}
	a.args = append(a.args, "--embedded-etcd-listen=0.0.0.0:2379")
	b.args = append(b.args, "--etcd-endpoints=http://"+farStore+":2379")
	lo, err := a.ns.Netlink().LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr(farStore + "/32")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.ns.Netlink().AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	b.route(t, b.ns.Netlink().RouteAdd, "0.0.0.0/0")
	return a, b
}

// route adds or deletes a route via a.
func (h *host) route(t *testing.T, change func(*netlink.Route) error, dst string) {
	t.Helper()
	via, err := netlink.ParseAddr("192.0.2.1/32")
	if err != nil {
		t.Fatal(err)
	}
	to, err := netlink.ParseIPNet(dst)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(&netlink.Route{Dst: to, Gw: via.IP}); err != nil {
		t.Fatalf("route %s: %v", dst, err)
	}
}

func TestAnOverlayThatCutsTheStoreOff(t *testing.T) {
	t.Parallel()
	a, b := farPair(t)
	a.start(t)
	a.awaitReady(t)
	b.start(t)
	await.OK(t, "b says why it waits", func() error {
		s, err := b.status(t)
		if err == nil && (s.Ready || !strings.Contains(fmt.Sprint(s.NotReady), cutOff)) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
	if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusServiceUnavailable ||
		!strings.HasPrefix(body, "flanneld is not ready yet\nconfig: "+cutOff) {
		t.Errorf("readyz: %v %d %s", err, code, body)
	}
	b.route(t, b.ns.Netlink().RouteAdd, farStore+"/32")
	b.awaitReady(t)
	b.reaches(t, a)
	if s, err := b.status(t); err != nil || len(s.Backend.Notes) > 0 {
		t.Errorf("status: %v %+v", err, s)
	}
	if n := strings.Count(b.log.String(), cutOff); n != 1 {
		t.Errorf("it is logged %d times", n)
	}

	b.route(t, b.ns.Netlink().RouteDel, farStore+"/32")
	noted := func() error {
		s, err := b.status(t)
		if err == nil && !strings.Contains(fmt.Sprint(s.Backend.Notes), cutOff) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	}
	await.OK(t, "b notes that the route is gone", noted)
	b.stop(t, syscall.SIGTERM)
	b.start(t) // with its cached set packets flow, whatever becomes of the store
	await.OK(t, "b notes it after a restart", noted)
	b.reaches(t, a)
}

func TestCheckFindsAnOverlayThatCutsTheStoreOff(t *testing.T) {
	t.Parallel()
	a, b := farPair(t)
	for fault, extra := range map[string]string{cutOff: "http://" + farStore + ":2379",
		"": "http://192.0.2.1:2379"} {
		cmd := b.command("--check", "--offline", "--net-config-path", filepath.Join(a.dir, "net.json"),
			"--etcd-endpoints", extra)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := b.ns.Run(cmd); (err != nil) != (fault != "") || !strings.Contains(out.String(), fault) {
			t.Errorf("%s: %v\n%s", extra, err, out.String())
		}
	}
}

func TestASeedThatCutsTheStoreOffIsNotWritten(t *testing.T) {
	t.Parallel()
	a, b := farPair(t)
	if i := slices.Index(a.args, "--net-config-path"); i >= 0 { // the store stays without a configuration
		a.args = slices.Delete(a.args, i, i+2)
	}
	a.start(t)
	await.OK(t, "a waits for a configuration, and has no example of one", func() error {
		s, err := a.status(t)
		why := fmt.Sprint(s.NotReady)
		if err == nil && (!strings.Contains(why, "/network/config") || strings.Contains(why, "{")) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
	b.start(t, "--net-config-path", filepath.Join(a.dir, "net.json"))
	await.OK(t, "b keeps its file to itself", func() error {
		s, err := b.status(t)
		if err == nil && !strings.Contains(fmt.Sprint(s.NotReady), "net.json is not written to the store: "+
			cutOff) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
}
