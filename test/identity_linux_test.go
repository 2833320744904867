package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/traffic"
)

// bothWays has two pods send to each other until lossless is called, which wants none lost.
func bothWays(t *testing.T, a, b *lab.Pod) (lossless func()) {
	t.Helper()
	flows := []*traffic.Flow{
		traffic.Start(t, a.Endpoint(4), b.Endpoint(4), 200), traffic.Start(t, b.Endpoint(4), a.Endpoint(4), 200),
	}
	return func() {
		t.Helper()
		for _, f := range flows {
			f.Lossless()
		}
	}
}

// putBack waits until a record is as it was.
func putBack(t *testing.T, l *lab.Lab, want pair) {
	t.Helper()
	await.OK(t, "the record is put back", func() error {
		for _, kv := range list(t, l.Store, want.key) {
			if kv.key == want.key && kv.value == want.value {
				return nil
			}
		}
		return fmt.Errorf("the store has %v, want %v", list(t, l.Store, prefix), want)
	})
}

// waits polls until a node waits, and gives all the reasons in why.
func waits(t *testing.T, n *lab.Node, why ...string) {
	t.Helper()
	status(t, n, await.Patience, func(s statusJSON) error {
		text := strings.Join(s.NotReady, "\n")
		if s.Ready || !slices.Contains(s.NotReadyCodes, "lease_not_held") || !containsAll(text, why) {
			return fmt.Errorf("ready %v, %q, want %q", s.Ready, text, why)
		}
		return nil
	})
}

// clone starts the daemon of a node anew with the identity of another.
func clone(t *testing.T, n, of *lab.Node, flags ...string) {
	t.Helper()
	n.Daemon.SetArgs(append(append(n.Daemon.Args(), "--node-id="+of.Name, "--subnet-file="+t.TempDir()+"/env"),
		flags...)...)
	if err := n.Daemon.Start(); err != nil {
		t.Fatal(err)
	}
}

// A living node is not replaced: not by a copy of it elsewhere, not by a second weftd on its host, and not by
// what somebody writes to the store. Its pods lose nothing.
func TestLivingNodeIsNotReplaced(t *testing.T) {
	long(t)
	l := up(t, lab.Spec{Nodes: 3})
	first, second, third := l.Node(1), l.Node(2), l.Node(3)
	reach(t, await.Patience, first.Pods[0], second.Pods[0], 4)
	if err := third.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := weft(t, second, "lease", "release", third.Net.V4.Masked().String()); err != nil {
		t.Fatal(err, out, errs)
	}
	ours := recordOf(t, l, first)
	lossless := bothWays(t, first.Pods[0], second.Pods[0])
	say := func(what string) {
		t.Helper()
		t.Log(what)
		lossless()
		if err := first.Ready(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		lossless = bothWays(t, first.Pods[0], second.Pods[0])
	}

	clone(t, third, first, "--cache-dir="+t.TempDir())
	waits(t, third, `"node1"`, "198.18.0.1", "--node-id", "--cache-dir")
	if got := recordOf(t, l, first); got != ours {
		t.Errorf("the record is %v, before %v", got, ours)
	}
	say("a copy elsewhere")

	dir := t.TempDir()
	says(t, first.Host, 1, []string{fmt.Sprintf("pid %d", first.Daemon.PID()), first.ControlSocket},
		first.Daemon.Args()...)
	apart := []string{"--cache-dir=" + dir, "--control-socket=" + dir + "/s", "--healthz-port=0",
		"--subnet-file=" + dir + "/subnet.env"}
	says(t, first.Host, 1, []string{fmt.Sprintf("pid %d", first.Daemon.PID()), "10.42.0.0/16"},
		append(first.Daemon.Args(), apart...)...)
	if got := recordOf(t, l, first); got != ours {
		t.Errorf("the record is %v, before %v", got, ours)
	}
	say("a second weftd on the host")

	if !strings.Contains(ours.value, `"MTU":1472`) {
		t.Fatal(ours.value)
	}
	put(t, l.Store, ours.key, strings.Replace(ours.value, `"MTU":1472`, `"MTU":1471`, 1), 24*time.Hour)
	putBack(t, l, ours)
	put(t, l.Store, ours.key, `{"PublicIP":"198.18.0.1","PublicIPv6":null,"Weft":{"Node":"node1","MTU":1471}}`,
		24*time.Hour)
	putBack(t, l, ours)
	put(t, l.Store, ours.key, "{", 0)
	putBack(t, l, ours)
	say("its record written over")
	del(t, l.Store, ours.key)
	putBack(t, l, ours)
	t.Log("its record deleted")
	lossless()

	// A node to which the store says that the subnet is elsewhere sends there, until the owner has written its
	// record again.
	for _, value := range []string{
		`{"PublicIP":"198.18.0.2","PublicIPv6":null,"Weft":{"Node":"node1","State":"x"}}`,
		`{"PublicIP":"198.18.7.9","PublicIPv6":null,"Weft":{"Node":"thief"}}`,
	} {
		put(t, l.Store, ours.key, value, 24*time.Hour)
		putBack(t, l, ours)
		reach(t, await.Patience, second.Pods[0], first.Pods[0], 4)
	}

	// The first daemon hangs, and its kernel still answers. Then its host is off the wire, and the copy takes
	// over.
	if err := first.Daemon.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waits(t, third, "its address answers")
	sh(t, first.Host, "ip link set eth0 down")
	if err := third.WaitReady(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	// The first comes back while the copy lives. It keeps its routes, and waits until the copy is gone.
	sh(t, first.Host, "ip link set eth0 up")
	if err := first.Daemon.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	waits(t, first, `"node1"`, "198.18.0.3")
	if addrs := sh(t, first.Host, "ip -o addr show dev flannel0"); !strings.Contains(addrs,
		first.Net.V4.Masked().Addr().String()) {
		t.Errorf("it has given up its address: %s", addrs)
	}
	if err := third.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.WaitReady(t.Context()); err != nil {
		t.Fatal(lab.Explain(err))
	}
	reach(t, await.Patience, first.Pods[0], second.Pods[0], 4)
}
