package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
)

// pingJSON is what weft ping --json prints.
type pingJSON struct {
	SchemaVersion int `json:"schema_version"`
	Healthy       bool
	Took          time.Duration `json:"tookNanoseconds"`
	Ways          []struct {
		Layers []struct {
			Layer, Verdict, State, Says string
			Answered, Sent, MTU         int
		}
		FirstBroken       string
		Indistinguishable []string
		Causes            []struct{ Cause, Command, Where, Tells string }
	}
}

// Whatever is broken between two nodes, weft ping names the first layer that is, with a cause that is right and a command, within ten seconds.
func TestPingNamesTheBrokenLayer(t *testing.T) {
	busy(t)
	l := up(t, lab.Spec{Nodes: 2, NetworkConfig: []byte(ipv4Only)})
	wire, err := l.Host("wire")
	if err != nil {
		t.Fatal(err)
	}
	me, peer := l.Node(1), l.Node(2)
	ping := func(args ...string) (p pingJSON) {
		t.Helper()
		out, errs, err := weft(t, me, append([]string{"ping", "--json"}, args...)...)
		if json.Unmarshal([]byte(out), &p) != nil || len(p.Ways) != 1 || p.SchemaVersion != 1 {
			t.Fatalf("weft ping %v: %v: %s%s", args, err, out, errs)
		}
		if p.Healthy != (err == nil) {
			t.Errorf("weft ping %v: healthy %v, and the exit status is %v", args, p.Healthy, err)
		}
		if p.Took > await.Patience { // ten seconds are promised of it where the machine has the time
			t.Errorf("weft ping %v took %v", args, p.Took)
		}
		return p
	}
	// A machine that has no time for a weftd loses a packet of it, or answers late, and weft ping says that. So what it says wrong it is asked
	// once more, with five seconds for each answer, and that counts.
	names := func(what, timeout string, args []string, right func(pingJSON) error) {
		t.Helper()
		err := right(ping(append(args, "--timeout", timeout)...))
		if err != nil {
			t.Logf("%s: asked again, with more time: %v", what, err)
			err = right(ping(append(args, "--timeout", "5s")...))
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	whole := func(what string) {
		t.Helper()
		await.OK(t, what, func() error {
			if p := ping(peer.Pods[0].V4.String(), "-c", "2", "--interval", "20ms", "--timeout", "1s"); !p.Healthy {
				return fmt.Errorf("%+v", p.Ways[0])
			}
			return nil
		})
	}
	// On the bridge, since a packet socket gets and sends what no rule of the node itself sees.
	onWire := func(rule string) func() {
		return func() {
			sh(t, wire, fmt.Sprintf("nft 'table netdev hole { chain c { type filter hook ingress devices = { node1, node2 } priority 0\n%s\n}\n}'", rule))
		}
	}
	offWire := func() { sh(t, wire, "nft delete table netdev hole") }
	to, nobody := peer.Underlay4, peer.Pods[0].V4.Next().Next().String()
	talk, hush := talker(t, peer, me.Pods[0].V4)
	whole("a healthy pod")
	for _, c := range []struct {
		name     string
		do, undo func()
		args     []string
		timeout  string
		broken   string
		alike    []string
		// answer are the layers that have to answer, since the fault does not touch them.
		answer         string
		cause, command string
	}{
		{"the port is dropped both ways", onWire(fmt.Sprintf("udp dport 8285 ip daddr %v drop\nudp dport 8285 ip saddr %[1]v drop", to)), offWire, []string{peer.Name}, "1s",
			"port", []string{"data-plane"}, "underlay", "UDP port 8285 is dropped on the way", "tcpdump -ni any udp port 8285 and host " + me.Underlay4.String()},
		{"the port is dropped on the way there", func() { talk(); onWire(fmt.Sprintf("udp dport 8285 ip daddr %v drop", to))() }, func() { hush(); offWire() }, []string{peer.Name}, "1s",
			"port", nil, "underlay", "what it sends does arrive here", "tcpdump -ni any udp dst port 8285"},
		{"the port is rejected", onWire(fmt.Sprintf("udp dport 8285 ip daddr %v reject with icmp type admin-prohibited", to)), offWire, []string{peer.Name}, "1s",
			"port", nil, "underlay", "its firewall rejects UDP port 8285", "nft list ruleset | grep -n reject"},
		{"its daemon is stopped", func() { signal(t, peer, unix.SIGSTOP) }, func() { signal(t, peer, unix.SIGCONT) }, []string{peer.Name}, "1s",
			"port", []string{"data-plane"}, "underlay", "its weftd is stopped or frozen", "systemctl status weftd"},
		{"large packets are lost", onWire("ip length > 1400 drop"), offWire, []string{peer.Name}, "1s",
			"underlay", nil, "underlay port data-plane daemon", "a device on the way carries less", "ping -c1 -M do -s 1372 " + to.String()},
		{"large datagrams of the overlay are lost", onWire("udp dport 8285 ip length > 1400 drop"), offWire, []string{peer.Name}, "1s",
			"port", nil, "underlay port data-plane daemon", "a device on the way carries less", "ping -c1 -M do"},
		{"there is no such pod", func() {}, func() {}, []string{nobody}, "1s",
			"pod", nil, "underlay port data-plane daemon bridge", "there is no pod with the address", "ip neigh show " + nobody},
		{"its host is gone", func() { sh(t, wire, "ip link set node2 down") }, func() { sh(t, wire, "ip link set node2 up") }, []string{peer.Name}, "2500ms",
			"underlay", nil, "", "the host is off, or its link is down", "ip neigh show " + to.String()},
	} {
		c.do()
		names(c.name, c.timeout, c.args, func(p pingJSON) error {
			way := p.Ways[0]
			t.Logf("%s: %.1f s, first broken: %s, or %v", c.name, p.Took.Seconds(), way.FirstBroken, way.Indistinguishable)
			if way.FirstBroken != c.broken || c.name != "its host is gone" && !slices.Equal(way.Indistinguishable, c.alike) {
				return fmt.Errorf("got %s, or %v; want %s, or %v: %+v", way.FirstBroken, way.Indistinguishable, c.broken, c.alike, way.Layers)
			}
			for _, row := range way.Layers {
				if strings.Contains(c.answer, row.Layer) && row.Answered == 0 {
					return fmt.Errorf("%s does not answer: %+v", row.Layer, row)
				}
			}
			if !slices.ContainsFunc(way.Causes, func(x struct{ Cause, Command, Where, Tells string }) bool {
				return strings.Contains(x.Cause, c.cause) && strings.Contains(x.Command, c.command) && x.Where != "" && x.Tells != ""
			}) {
				return fmt.Errorf("no cause %q with %q in %+v", c.cause, c.command, way.Causes)
			}
			return nil
		})
		if c.name == "the port is rejected" {
			rejected(t, me, peer)
		}
		c.undo()
		whole("whole again after: " + c.name)
	}
	sh(t, peer.Host, "ip link del cni0")
	names("without a bridge", "1s", []string{peer.Pods[0].V4.String()}, func(p pingJSON) error {
		if way := p.Ways[0]; way.FirstBroken != "bridge" || len(way.Causes) == 0 || !strings.Contains(way.Causes[0].Cause, "the bridge is gone") {
			return fmt.Errorf("%+v", way)
		}
		return nil
	})
	names("a node without pods has no bridge, and is whole", "1s", []string{peer.Name}, func(p pingJSON) error {
		if !p.Healthy {
			return fmt.Errorf("%+v", p.Ways[0])
		}
		return nil
	})
	signal(t, me, unix.SIGSTOP)
	defer signal(t, me, unix.SIGCONT)
	if out, errs, err := weft(t, me, "ping", peer.Name); err == nil || !strings.Contains(out, "weftd of this node does not answer (weftd is there, but does not answer") || !regexp.MustCompile(`underlay +`+to.String()+` +5/5`).MatchString(out) {
		t.Errorf("with this node's weftd stopped: %v: %s%s", err, out, errs)
	}
}

func signal(t *testing.T, n *lab.Node, s unix.Signal) {
	t.Helper()
	if err := n.Daemon.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// talker returns what has a node send packets to an address until it is hushed.
func talker(t *testing.T, n *lab.Node, to netip.Addr) (talk, hush func()) {
	t.Helper()
	var conn net.Conn
	var stop chan struct{}
	var sending sync.WaitGroup
	return func() {
			t.Helper()
			if err := n.Do(func() (err error) { conn, err = net.Dial("udp", netip.AddrPortFrom(to, 9).String()); return err }); err != nil {
				t.Fatal(err)
			}
			stop = make(chan struct{})
			sending.Go(func() {
				for {
					_, _ = conn.Write([]byte("heard")) // nobody listens there, and ICMP says so
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
		}, func() {
			close(stop)
			sending.Wait()
			_ = conn.Close()
		}
}

// rejected waits until a node shows that ICMP rejects its datagrams to a peer, and, since that lasts, has said so, once.
func rejected(t *testing.T, me, peer *lab.Node) {
	t.Helper()
	await.OK(t, "weft peers has the rejection", func() error {
		answer, err := ask[struct {
			Peers []struct {
				Name        string
				Unreachable struct {
					Says, By string
					Count    int
				}
			}
		}](t.Context(), me, "peers")
		if err != nil {
			return err
		}
		if u := answer.Peers[0].Unreachable; u.Says != "administratively prohibited" || u.By != peer.Underlay4.String() || u.Count == 0 {
			return fmt.Errorf("%+v", answer)
		}
		return nil
	})
	said := func() int {
		return strings.Count(string(me.Daemon.LogTail(5000)), "event=peer_unanswering peer=")
	}
	await.Within(t, await.Timers, "the rejection is said", func() error {
		_ = lab.Reach(await.Context(t, 100*time.Millisecond), me.Pods[0].Endpoint(4), peer.Pods[0].V4) // something to reject
		if said() == 0 {
			return errors.New("no line of it")
		}
		return nil
	})
	if n := said(); n != 1 {
		t.Errorf("the rejection is said %d times", n)
	}
}
