package lab

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weft/lease/subnetenv"
	"weft/test/await"
	"weft/test/netns"
)

// fakeWeftd is a variable of the environment that makes the test binary a weftd that carries nothing: it
// writes the subnet file and answers /readyz with the variable's text, or with status 200 if that is "ready".
const fakeWeftd = "WEFT_LAB_TEST_WEFTD"

func TestMain(m *testing.M) {
	if says := os.Getenv(fakeWeftd); says != "" {
		if err := runFake(says, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	netns.Main(m)
}

func runFake(says string, args []string) error {
	f := flag.NewFlagSet("weftd", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	node, subnet := f.String("node-id", "", ""), f.String("subnet-file", "", "")
	ip, port := f.String("healthz-ip", "", ""), f.String("healthz-port", "", "")
	for _, other := range []string{"etcd-endpoints", "iface", "cache-dir", "node-name", "control-socket",
		"log-format", "extra",
		"embedded-etcd-dir", "embedded-etcd-listen", "net-config-path", "holder-timeout"} {
		f.String(other, "", "")
	}
	f.Bool("embedded-etcd", false, "")
	f.Bool("embedded-etcd-insecure", false, "")
	if err := f.Parse(args); err != nil {
		return err
	}
	env := subnetenv.File{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, MTU: 1472,
		Subnet: netip.MustParsePrefix(fmt.Sprintf("10.42.%s.1/24", strings.TrimPrefix(*node, "node"))),
	}
	if err := subnetenv.Write(*subnet, env); err != nil {
		return err
	}
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if says != "ready" {
			http.Error(w, "flanneld is not ready yet\n"+says, http.StatusServiceUnavailable)
		}
	})
	return http.ListenAndServe(*ip+":"+*port, nil)
}

func fakeSpec(t *testing.T, says string) Spec {
	t.Helper()
	t.Setenv(fakeWeftd, says)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Spec{WeftdPath: self, WeftdArgs: []string{"--extra=yes"}, PodsPerNode: 1}
}

func TestReadyNodesGetPods(t *testing.T) {
	l := up(t, fakeSpec(t, "ready"))
	if got := l.Node(2).Pods[0].V4.String(); got != "10.42.2.2" {
		t.Errorf("first pod of node 2 has %s", got)
	}
	if got := l.Node(2).Net.MTU; got != 1472 {
		t.Errorf("mtu %d", got)
	}
	if args := l.Node(1).Daemon.Args(); !slices.Contains(args, "--embedded-etcd") ||
		args[len(args)-1] != "--extra=yes" {
		t.Errorf("node 1: %q", args)
	}
	if args := l.Node(2).Daemon.Args(); slices.Contains(args, "--embedded-etcd") ||
		!slices.Contains(args, "--etcd-endpoints=http://198.18.0.1:2379") {
		t.Errorf("node 2: %q", args)
	}
	n := l.Node(2)
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := n.Ready(t.Context()); err == nil {
		t.Error("ready after kill -9")
	}
	if err := n.Start(await.Context(t, await.Patience)); err != nil {
		t.Error(err)
	}
}

// A daemon is as much nicer than the tests as the spec says: they may run under nice(1) themselves.
func TestDaemonsGoBeforeOthers(t *testing.T) {
	netns.Root(t, "only root may raise a priority")
	spec := fakeSpec(t, "ready")
	spec.Nice = -3
	// the system call returns 20 less the nice value, 1 to 40 (getpriority(2))
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := min(own-spec.Nice, 40)
	d := up(t, spec).Node(2).Daemon
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, d.PID()); err != nil || got != want {
		t.Errorf("priority %d, %v, want %d", got, err, want)
	}
}

func TestReadyzReasonIsReported(t *testing.T) {
	spec := fakeSpec(t, "no lease yet: the store is empty")
	spec.ReadyTimeout = time.Second
	_, err := Up(t.Context(), spec)
	var ne *NodeError
	if !errors.As(err, &ne) {
		t.Fatalf("%v, want a NodeError", err)
	}
	defer os.RemoveAll(strings.TrimSuffix(ne.LogFile, "/node1/weftd.log"))
	if !strings.Contains(err.Error(), "store is empty") {
		t.Errorf("%v", err)
	}
}

func TestSeparateStore(t *testing.T) {
	spec := fakeSpec(t, "ready")
	spec.Store = Separate
	l := up(t, spec)
	get := func() string {
		t.Helper()
		value, _, err := l.Store.Get(await.Context(t, await.Patience), configKey)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	if got := get(); got != string(l.Spec.NetworkConfig) {
		t.Errorf("config in the store: %s", got)
	}
	if err := l.Store.Daemon.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := l.Store.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := get(); got != string(l.Spec.NetworkConfig) {
		t.Errorf("config after kill -9 of the store: %s", got)
	}
	for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := l.Store.Daemon.Signal(sig); err != nil {
			t.Error(err)
		}
	}
	get()
}
