package test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weft/lease/etcd/etcdtest"
	"weft/routing/routecontrol"
	"weft/test/await"
	"weft/test/lab"
	"weft/test/linuxrouter"
)

// Nodes whose only way to each other is a router have it programmed by a controller there: all pods reach
// each other, by that router, and a controller that is away costs no packet. What a controller makes of nodes
// that leave, and of its own start, package routecontrol tests.
func TestRoutesByARouter(t *testing.T) {
	parallel(t)
	l := up(t, lab.Spec{Nodes: 3,
		NetworkConfig: json.RawMessage(`{"Network":"10.42.0.0/16","Backend":{"Type":"host-gw"}}`)})
	router := newcomer(t, l, 200)
	sh(t, router, "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 "+
		"net.ipv4.conf.eth0.send_redirects=0")
	ca := etcdtest.NewCA(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &routeController{t: t, router: router}
	c.cert, c.key = ca.LeafAt("router", net.IPv4(198, 18, 0, 200))
	c.start()
	t.Cleanup(func() { c.stop() })
	if err := l.Store.Put(t.Context(), "/coreos.com/network/config",
		`{"Network":"10.42.0.0/16","Backend":{"Type":"route-hook","Interval":30}}`); err != nil {
		t.Fatal(err)
	}
	for _, n := range l.Nodes() {
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Of the others on the segment it knows the router and the store alone.
		sh(t, n.Host, fmt.Sprintf("ip addr flush dev eth0; ip addr add %s/32 dev eth0; ip route add 198.18.0.200 "+
			"dev eth0; ip route add %s dev eth0; ip route add default via 198.18.0.200",
			n.Underlay4, l.Store.Addr))
		n.Daemon.SetArgs(append(n.Daemon.Args(), "--route-hook-url=https://198.18.0.200:8480",
			"--route-hook-cafile="+ca.File, "--route-hook-token-file="+token)...)
	}
	for _, n := range l.Nodes() {
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(lab.Explain(err))
		}
	}
	pods := l.Pods()
	everyPair(t, pods)
	streams(t, pods[0].Endpoint(4), pods[1].Endpoint(4))
	datagrams(t, pods[0], pods[2], 4, 1500-28)
	if out, err := pods[0].Command(t.Context(), "ping", "-n", "-c", "1", "-W", "10", "-t", "2",
		pods[1].Addr(4).String()); !strings.Contains(string(out), "198.18.0.200") {
		t.Errorf("with two hops, want the router to answer: %v\n%s", err, out)
	}
	first := l.Node(1)
	s := hookStatus(t, first, func(s hookStatusJSON) error {
		if !s.Ready || s.Controller.Accepted != 3 || s.Controller.Fault != "" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if s.Controller.URL != "https://198.18.0.200:8480/v1/views/"+first.Name {
		t.Errorf("%+v", s)
	}
	if found, err := examine(t, first); err != nil || slices.ContainsFunc(found, func(f finding) bool {
		return f.Verdict == "fault"
	}) {
		t.Errorf("weft doctor, where all is well: %v, %v", found, err)
	}

	// The controller is away: packets go on over a restart of weftd, which says since when.
	c.stop()
	again(t, first)
	reach(t, await.Patience, pods[0], pods[1], 4)
	hookStatus(t, first, func(s hookStatusJSON) error {
		if !s.Ready || !strings.Contains(s.Controller.Fault, "connection refused") {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// again restarts a node's weftd.
func again(t *testing.T, n *lab.Node) {
	t.Helper()
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
}

// routeController is the reference controller on a router.
type routeController struct {
	t         *testing.T
	router    *lab.Host
	cert, key string
	server    *http.Server
	end       func() // ends the rounds
}

func (c *routeController) start() {
	c.t.Helper()
	control, err := routecontrol.New(routecontrol.Options{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, Grace: time.Second,
		Token: func(*slog.Logger) string { return "secret" }, Again: 100 * time.Millisecond,
		Programmer: linuxrouter.Router{Handle: c.router.NS.Netlink()}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	var l net.Listener
	if err := c.router.Do(func() (err error) { l, err = net.Listen("tcp", "198.18.0.200:8480"); return err }); err != nil {
		c.t.Fatal(err)
	}
	c.server = &http.Server{Handler: control, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13}}
	server := c.server
	go func() { _ = server.ServeTLS(l, c.cert, c.key) }() // it ends with stop
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = control.Run(ctx) // it ends with ctx alone
	}()
	c.end = func() { cancel(); <-over }
}

func (c *routeController) stop() {
	if c.server != nil {
		_ = c.server.Close() // what it interrupts is asked again
		c.end()
		c.server = nil
	}
}

// hookStatusJSON is what weft status says of the controller.
type hookStatusJSON struct {
	Ready      bool `json:"ready"`
	Controller struct {
		URL      string `json:"url"`
		Accepted int    `json:"accepted"`
		Fault    string `json:"fault"`
	} `json:"controller"`
}

func hookStatus(t *testing.T, n *lab.Node, ok func(hookStatusJSON) error) (s hookStatusJSON) {
	t.Helper()
	await.OK(t, n.Name+" and its controller", func() (err error) {
		if s, err = ask[hookStatusJSON](t.Context(), n, "status"); err != nil {
			return err
		}
		return ok(s)
	})
	return s
}
