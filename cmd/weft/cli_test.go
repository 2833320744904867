package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/cmd/internal/buildinfo"
	"weft/cmd/internal/control"
	"weft/cmd/internal/podport"
	"weft/cmd/weft/internal/cli"
	"weft/lease"
	"weft/test/golden"
	"weft/test/netns"
)

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	if socket := os.Getenv(asDaemon); socket != "" {
		l, err := control.Listen(socket)
		if err == nil {
			err = control.Serve(context.Background(), l, serverOf(&node{}))
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	golden.Flag()
	netns.Main(m)
}

// node answers as a weftd in the middle of its life would.
type node struct {
	empty bool
	err   error
	asked control.ReleaseRequest

	captured control.CaptureRequest
}

// at is a moment that far from now, with room for the test to be slow: durations
// of an hour and more are printed in minutes.
func at(d time.Duration) time.Time { return time.Now().Add(d) }

const half = 30 * time.Second

func (n *node) Status() control.Status {
	if n.empty {
		return control.Status{
			Version: "v0.1.0", NodeID: "a", PID: 7, Uptime: 3,
			NotReady: []string{"store: connection refused", "lease: waiting for the store"},
			Store: control.Store{Kind: "etcd", Endpoints: []string{"http://127.0.0.1:2379"},
				Prefix: "/coreos.com/network", Error: "connection refused"},
			Cache: control.Cache{File: "/var/lib/weft/lease.json"},
		}
	}
	passed := podport.Traffic{SentPackets: 12, SentBytes: 3 << 20, ReceivedPackets: 9, ReceivedBytes: 2048}
	return control.Status{
		Version: "v0.1.0", Name: "db1", NodeID: "a", PID: 7, Uptime: 3*3600 + 12*60 + 5, Ready: true, Peers: 2,
		Rejected: 1,
		Alarm:    "the store is another cluster: 1 record that it lost is kept",
		Lease: &control.Lease{Subnet: prefix("10.42.1.0/24"), IPv6Subnet: prefix("fd00:1::/64"), Held: true,
			Expires: at(23*time.Hour + 59*time.Minute + half)},
		Backend: control.Backend{Type: "udp", Path: "portable", Device: "flannel0", MTU: 1472, Port: 8285,
			InPlace: true, Notes: []string{"adopted device flannel0"}},
		Underlay: control.Underlay{Link: "eth0", MTU: 1500, Address: addr("10.0.0.1"), PublicIP: addr("192.0.2.1")},
		Store: control.Store{Kind: "etcd", Endpoints: []string{"https://a:2379", "https://b:2379"},
			Prefix: "/coreos.com/network", Connected: true, LastSeen: at(-time.Hour - half), Revision: 9},
		Cache: control.Cache{File: "/var/lib/weft/lease.json", SavedAt: at(-3*time.Hour - half), Used: true},
		Pods: &control.PodCounts{
			Attached: 2, Missing: 1, Problems: 1, Traffic: passed, RefusedPackets: 4,
			Busiest: []control.PodTraffic{
				{Key: podport.Key{ID: "1a", Interface: "eth0"}, Name: "web", Traffic: passed,
					RefusedPackets: 4},
				{Key: podport.Key{ID: "2b", Interface: "net1"}},
			},
		},
		Counters: control.Counters{
			Egress: control.Flow{Received: 10, Delivered: 7, ReceivedBytes: 15 << 20, DeliveredBytes: 999,
				Drops: []control.Drop{{Reason: "no_route", Packets: 2}, {Reason: "ttl", Packets: 1}}},
			Ingress:        control.Flow{Received: 4, Delivered: 4, ReceivedBytes: 4096, DeliveredBytes: 4096},
			SocketOverflow: 3, HeldBack: 1,
		},
	}
}

func (n *node) Peers() control.Peers {
	if n.empty {
		return control.Peers{}
	}
	return control.Peers{
		Peers: []control.Peer{
			{Name: "b", Subnets: []netip.Prefix{prefix("10.42.2.0/24"), prefix("fd00:2::/64")},
				Address: addr("10.0.0.2"), Weft: true, Recv: []string{"gso", "pcsum", "pack"}, Path: "portable",
				MTU: 1372, PathMTU: 1400,
				Traffic: &control.Traffic{TxPackets: 5, TxBytes: 5000, RxPackets: 1234567, RxBytes: 1 << 33,
					LastSeen: at(-2*time.Hour - half)},
				Drops: []control.Drop{{Reason: "foreign_source", Packets: 8,
					Admit: `Backend.AllowedSources (or Backend.SourceCheck "outer")`}}},
			{Name: "10.42.3.0/24", Subnets: []netip.Prefix{prefix("10.42.3.0/24")}, Address: addr("10.0.0.3"),
				Path: "portable", MTU: 1472, Traffic: &control.Traffic{}},
			{Name: "web.example", NodeID: "3f2a41c9d07711aa3f2a41c9d07711aa",
				Subnets: []netip.Prefix{prefix("10.42.4.0/24")}, Address: addr("10.0.0.4"), Path: "kernel", MTU: 1450},
		},
		Strangers: []control.Stranger{{Address: addr("203.0.113.9"), Packets: 2, LastSeen: at(-50*time.Hour - half),
			Admit: "the sender's lease"}},
	}
}

func (n *node) Leases(context.Context) (control.Leases, error) {
	if n.empty {
		return control.Leases{Source: "weftd", Network: "10.42.0.0/16"}, n.err
	}
	return control.Leases{
		Source: "weftd", Network: "10.42.0.0/16",
		Leases: []control.Record{
			{Subnet: prefix("10.42.1.0/24"), PublicIP: addr("192.0.2.1"), Node: "3f2a41c9d07711aa3f2a41c9d07711aa",
				Name: "a", Backend: "udp", Own: true, Expires: at(5*time.Hour + half), Revision: 12},
			{Subnet: prefix("10.42.2.0/24"), IPv6Subnet: prefix("fd00:2::/64"), PublicIP: addr("10.0.0.2"),
				PublicIPv6: addr("2001:db8::2"), Node: "evil\x1b[2J", Backend: "udp", Reservation: true, Revision: 4},
			{Subnet: prefix("10.42.3.0/24"), PublicIP: addr("10.0.0.3"), Backend: "vxlan", Revision: 5},
		},
		Rejected: []lease.Rejected{{Key: "10.99.0.0-24", Reason: "outside_network", Detail: "10.99.0.0/24 is not " +
			"inside 10.42.0.0/16"}},
	}, n.err
}

func (n *node) Release(_ context.Context, r control.ReleaseRequest) (control.Released, error) {
	n.asked = r
	return control.Released{Record: control.Record{Subnet: prefix("10.42.2.0/24"), Node: "b",
		PublicIP: addr("10.0.0.2"), Backend: "udp", Expires: at(3*time.Hour + half)}}, n.err
}

func (n *node) RotateKey(context.Context) (control.Rotated, error) {
	return control.Rotated{Before: "YmVmb3Jl", PublicKey: "YWZ0ZXI="}, n.err
}

// Reload answers as after a change of everything that a reload is about.
func (n *node) Reload(context.Context) (control.Reloaded, error) {
	if n.empty {
		return control.Reloaded{Changed: []control.ReloadChange{}, Restart: []control.ReloadChange{},
			Faults: []string{}, Notes: []string{
				"network configuration: that of /etc/net-conf.json is the one in use"}}, n.err
	}
	return control.Reloaded{
		Changed: []control.ReloadChange{{Key: "--v", From: "0", To: "1"},
			{Key: "credentials", Detail: "the way to the store was made anew, with the files as they are now"}},
		Restart: []control.ReloadChange{{Key: "--iface", From: "eth0", To: "eth1", Detail: "takes a restart: " +
			"weft upgrade, or systemctl restart weftd"},
			{Key: "--node-id", To: "evil\x1b[2J", Detail: "takes a restart"}},
		Faults: []string{"network configuration: that of the store is not taken up, and the one in use stays: " +
			"Network: is missing"},
		Notes: []string{}, Revision: 12,
	}, n.err
}

// Ask answers for b alone.
func (n *node) Ask(_ context.Context, r control.AskRequest) (control.Asked, error) {
	a := control.Asked{RTTs: make([]time.Duration, r.Count)}
	if r.Address != addr("10.42.2.0") {
		return a, control.ErrNotFound
	}
	for i := range a.RTTs {
		a.RTTs[i] = time.Millisecond
	}
	return a, n.err
}

// Capture writes two packets, and then waits as for more.
func (n *node) Capture(ctx context.Context, r control.CaptureRequest, w control.CaptureWriter) (err error) {
	if n.err != nil {
		return n.err
	}
	n.captured = r
	at := time.Date(2026, 11, 22, 13, 0, 0, 123456000, time.Local)
	for i, p := range []control.CapturedPacket{
		{Outbound: true, Data: capturedTCP, Peer: "b", Address: addr("10.0.0.2"), Segments: 45, SegmentSize: 1398},
		{Data: capturedPing, Address: addr("203.0.113.9"), Dropped: "unknown_peer", Admit: "the sender's lease"},
	} {
		p.Time, p.Length = at.Add(time.Duration(i)*time.Millisecond), len(p.Data)
		err = errors.Join(err, w.Write(control.Captured{Packet: &p}))
	}
	err = errors.Join(err, w.Write(control.Captured{Received: 2, Missed: 7}))
	if r.Count == 0 {
		w.Flush()
		<-ctx.Done()
	}
	return err
}

// capturedTCP is a SYN from 10.42.1.5 to 10.42.2.7, and capturedPing an echo request.
var (
	capturedTCP = append([]byte{0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 42, 1, 5, 10, 42, 2, 7, 0x9c,
		0x40, 0, 80,
		0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff}, 0, 0, 0, 0)
	capturedPing = []byte{0x45, 0, 0, 28, 0, 1, 0x40, 0, 64, 1, 0, 0, 10, 42, 2, 7, 10, 42, 1, 5, 8, 0, 0xf7,
		0xff, 0, 0, 0, 0}
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// services are those that a node of the tests has.
type services interface {
	control.Pages
	control.LeaseService
	control.PodService
	control.ProbeService
	control.Capturer
	control.Reloader
	control.KeyService
}

func serverOf(n services) control.Server {
	return control.Server{Pages: n, Leases: n, Pods: n, Probes: n, Captures: n, Settings: n, Keys: n}
}

// start serves n and returns its socket.
func start(t *testing.T, n services) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weftd.sock")
	l, err := control.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, l, serverOf(n)) }() // waited for below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return path
}

// weft runs the command line.
func weft(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(t.Context(), args, &out, &errs)
	return out.String(), errs.String(), err
}

func TestHumanOutput(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		empty      bool
	}{
		{"status", "status", false}, {"status-starting", "status", true},
		{"peers", "peers", false}, {"peers-none", "peers", true},
		{"leases", "lease list", false}, {"leases-none", "lease list", true},
		{"pods", "pods", false}, {"pods-none", "pods", true},
		{"release", "lease release 10.42.2.0/24", false}, {"reload-none", "reload", true},
		{"rotate-key", "rotate-key", false}, {"rotate-key-json", "rotate-key --json", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := start(t, &node{empty: tt.empty})
			out, stderr, err := weft(t, append(strings.Fields(tt.args), "--control-socket", socket)...)
			if status := cli.ExitStatus(0); err != nil && !(tt.name == "status-starting" &&
				errors.As(err, &status)) ||
				stderr != "" {
				t.Fatalf("%v %s", err, stderr)
			}
			golden.Check(t, tt.name, []byte(out))
		})
	}
}

// versioned is what a document begins with.
type versioned struct {
	SchemaVersion int `json:"schema_version"`
}

// A document has its version, and beside it the fields of the daemon's answer and no other.
func TestJSONIsTheControlTypes(t *testing.T) {
	socket := start(t, &node{})
	for args, into := range map[string]any{
		"status": &struct {
			versioned
			control.Status
		}{},
		"peers": &struct {
			versioned
			control.Peers
		}{},
		"pods": &struct {
			versioned
			podport.Pods
		}{},
		"lease list": &struct {
			versioned
			control.Leases
		}{},
		"lease release 10.42.2.0/24": &struct {
			versioned
			control.Released
		}{}} {
		out, _, err := weft(t, append(strings.Fields(args), "--json", "--control-socket", socket)...)
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(strings.NewReader(out))
		d.DisallowUnknownFields()
		if err := d.Decode(into); err != nil {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
		if !strings.HasPrefix(out, "{\n  \"schema_version\": 1,\n") {
			t.Errorf("%s: %.40q does not begin with the version", args, out)
		}
	}
}

func TestReleaseAsksForWhatWasSaid(t *testing.T) {
	n := &node{}
	socket := start(t, n)
	if _, _, err := weft(t, "lease", "release", "--force", "10.42.2.0-24", "--control-socket="+socket); err != nil {
		t.Fatal(err)
	}
	if want := (control.ReleaseRequest{Subnet: "10.42.2.0-24", Force: true}); n.asked != want {
		t.Errorf("asked %+v", n.asked)
	}
	n.err = fmt.Errorf("10.42.1.0/24: %w: it is this node's own", control.ErrRefused)
	if _, _, err := weft(t, "lease", "release", "10.42.1.0/24", "--control-socket="+socket); err == nil ||
		!strings.Contains(err.Error(), "own") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.sock")
	for _, tt := range []struct{ args, want string }{
		{"status --control-socket " + none, none},
		{"peers --control-socket " + none, "is it running?"},
		{"lease list --control-socket " + none, none},
		{"lease release 10.42.2.1/24", "10.42.2.1/24"},
		{"lease release", "arg"},
		{"nonsense", "nonsense"},
		{"status --nonsense", "nonsense"},
		{"lease list --etcd-endpoints http://u:hunter2@127.0.0.1:1", "etcd endpoint"},
		{"lease list --etcd-certfile /nonexistent/cert --etcd-keyfile /nonexistent/key --etcd-endpoints " +
			"https://127.0.0.1:1", "/nonexistent/cert"},
	} {
		_, _, err := weft(t, strings.Fields(tt.args)...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestCompletionAndVersion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, _, err := weft(t, "completion", shell); err != nil || len(out) < 1000 {
			t.Errorf("%s: %d bytes, %v", shell, len(out), err)
		}
	}
	for _, way := range []string{"--version", "version"} {
		if out, _, err := weft(t, way); err != nil || out != "weft "+buildinfo.Version("")+"\n" {
			t.Errorf("%s: %q %v", way, out, err)
		}
	}
}

// TestReloadNotComplete: what is not in force makes the exit status 1, in text and in JSON, and nothing that
// a daemon says controls the terminal.
func TestReloadNotComplete(t *testing.T) {
	socket := start(t, &node{})
	status := cli.ExitStatus(0)
	out, stderr, err := weft(t, "reload", "--control-socket", socket)
	if !errors.As(err, &status) || status != cli.ExitFailure || stderr != "" {
		t.Errorf("%v %q", err, stderr)
	}
	for line, want := range map[string]int{"\nchanged ": 2, "\nnot yet ": 2, "\nfault ": 1, "\nread ": 1,
		"\n": 7, "\x1b": 0} {
		if n := strings.Count("\n"+out, line); n != want {
			t.Errorf("%d of %q, want %d:\n%s", n, line, want, out)
		}
	}
	out, _, err = weft(t, "reload", "--json", "--control-socket", socket)
	var d struct {
		versioned
		control.Reloaded
	}
	if !errors.As(err, &status) || json.Unmarshal([]byte(out), &d) != nil || d.SchemaVersion != 1 ||
		len(d.Changed) != 2 || len(d.Restart) != 2 || len(d.Faults) != 1 || !strings.Contains(out, `"notes": []`) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, _, err := weft(t, "reload", "now", "--control-socket", socket); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("an argument: %v", err)
	}
}
