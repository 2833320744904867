package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"weft/cmd/internal/control"
	"weft/test/await"
)

// ruleLines returns what a log says of the host's rules, without the times.
func ruleLines(log string) (said []string) {
	for line := range strings.Lines(log) {
		if _, what, ok := strings.Cut(line, " event=rules_in_place where="); ok {
			said = append(said, what)
		}
	}
	return said
}

func TestTwoHostsTalk(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	b.start(t, "--ip-masq")
	sa, sb := a.awaitReady(t), b.awaitReady(t)
	a.reaches(t, b)
	b.reaches(t, a)

	if sa.NodeID != "a" || sa.Lease == nil || !sa.Lease.Held || sa.Store.Kind != "embedded etcd" ||
		!sa.Backend.InPlace || sa.Underlay.PublicIP != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("a's status: %+v", sa)
	}
	if sb.Cache.Used || sb.Store.Kind != "etcd" || !sb.Store.Connected {
		t.Errorf("b's status: %+v", sb)
	}
	for h, masq := range map[*host]string{a: "FLANNEL_IPMASQ=false", b: "FLANNEL_IPMASQ=true"} {
		text, err := os.ReadFile(h.file())
		if err != nil || !strings.Contains(string(text), "FLANNEL_NETWORK=10.42.0.0/16\n") ||
			!strings.Contains(string(text), "FLANNEL_MTU=1472\n") || !strings.Contains(string(text), masq) {
			t.Errorf("%s's subnet file: %v\n%s", h.name, err, text)
		}
	}
	if said := ruleLines(b.log.String()); len(said) < 2 || len(said) != len(slices.Compact(slices.Clone(said))) {
		// those that drop, and those that masquerade
		t.Errorf("rules are to be logged, and again only if they change: %q", said)
	}
	await.OK(t, "a's peers", func() error { // a packet is counted after it has been delivered
		peers, err := control.NewClient(a.socket()).Peers(t.Context())
		if err != nil || len(peers.Peers) != 1 || peers.Peers[0].Name != "b" || !peers.Peers[0].Weft ||
			peers.Peers[0].RxPackets == 0 || peers.Peers[0].Path == "" {
			return fmt.Errorf("%+v: %w", peers, err)
		}
		return nil
	})
	await.OK(t, "b's leases", func() error { // a set is applied before it is listed
		leases, err := control.NewClient(b.socket()).Leases(t.Context())
		if err != nil || len(leases.Leases) != 2 || leases.Network != "10.42.0.0/16" {
			return fmt.Errorf("%+v: %w", leases, err)
		}
		return nil
	})
	if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusOK {
		t.Errorf("readyz: %v %d %s", err, code, body)
	}
	if code, body, err := b.get(t, "/metrics"); err != nil || code != http.StatusOK ||
		!strings.Contains(body, "weft_peers 1\n") || !strings.Contains(body, `weft_build_info{`) {
		t.Errorf("metrics: %v %d", err, code)
	}
}

func TestStopLeavesEverythingAndTheNextStartNeedsNoStore(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	b.start(t)
	a.awaitReady(t)
	b.awaitReady(t)
	a.reaches(t, b)
	before, subnet := b.kernel(t), b.inner(t)
	if !strings.Contains(before, "10.42.0.0/16") {
		t.Fatalf("b's routes: %s", before)
	}
	for _, how := range []struct {
		sig  syscall.Signal
		code int
	}{{syscall.SIGTERM, 0}, {syscall.SIGINT, 0}, {syscall.SIGKILL, -1}} {
		if code := b.stop(t, how.sig); code != how.code {
			t.Errorf("%v: exit status %d, want %d", how.sig, code, how.code)
		}
		if after := b.kernel(t); after != before {
			t.Errorf("%v changed the kernel's state: %s, before %s", how.sig, after, before)
		}
		b.start(t, "--etcd-endpoints=http://192.0.2.1:9") // nobody is there
		a.reaches(t, b)
		b.reaches(t, a)
		s, err := b.status(t)
		if err != nil || s.Ready || !s.Cache.Used || s.Lease == nil || s.Lease.Held ||
			!slices.Contains(s.NotReadyCodes, control.StoreUnheard) {
			t.Errorf("without a store: %v %+v", err, s)
		}
		if code, body, err := b.get(t, "/readyz"); err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("readyz without a store: %v %d %s", err, code, body)
		}
	}
	b.stop(t, syscall.SIGTERM)
	b.start(t)
	if s := b.awaitReady(t); b.inner(t) != subnet || !s.Lease.Held {
		t.Errorf("another subnet: %v, before %v", b.inner(t), subnet)
	}
}

// kernel returns the overlay's part of the kernel's state.
func (h *host) kernel(t *testing.T) string {
	t.Helper()
	link, err := h.ns.Netlink().LinkByName("flannel0")
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := h.ns.Netlink().AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	routes, err := h.ns.Netlink().RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(link.Attrs().Index, link.Attrs().MTU, addrs, routes)
}

func TestStartsThatCannotSucceed(t *testing.T) {
	t.Parallel()
	a, _ := pair(t)
	a.start(t)
	pid := a.awaitReady(t).PID
	for _, tt := range []struct {
		name, args string
		status     int
		want       []string
	}{
		{"unknown flag", "--nonsense", 2, []string{"nonsense"}},
		{"live control socket", "", 1, []string{a.socket(), fmt.Sprintf("pid %d", pid)}},
		{"live control socket of another node", "--replace --cache-dir=" + t.TempDir(), 1, []string{"directory"}},
		{"no such config file", "--control-socket= --healthz-port=0 --net-config-path=/nonexistent", 1,
			[]string{"--net-config-path", "/nonexistent"}},
		{"no such certificate", "--control-socket= --healthz-port=0 --embedded-etcd=false " +
			"--etcd-cafile=/nonexistent", 1, []string{"/nonexistent"}},
		{"busy etcd port", "--control-socket= --healthz-port=0 --cache-dir=" + t.TempDir() +
			" --embedded-etcd-dir=" + t.TempDir(), 1, []string{"--embedded-etcd-listen", "address"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := a.command(strings.Fields(tt.args)...)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := a.ns.Start(cmd)
			if err == nil {
				err = cmd.Wait()
			}
			if cmd.ProcessState.ExitCode() != tt.status {
				t.Errorf("status %d (%v), want %d\n%s", cmd.ProcessState.ExitCode(), err, tt.status, out.String())
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%q is not in:\n%s", w, out.String())
				}
			}
		})
	}
}

func TestNothingSecretIsLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	_, b := pair(t)
	b.start(t, "-v=10", "--etcd-username=somebody", "--etcd-password="+secret,
		"--etcd-endpoints=http://192.0.2.1:9")
	await.OK(t, "b says what it waits for", func() error {
		s, err := b.status(t)
		if err == nil && !slices.Contains(s.NotReadyCodes, control.Waiting) {
			err = fmt.Errorf("%q", s.NotReady)
		}
		return err
	})
	b.stop(t, syscall.SIGTERM)
	if log := b.log.String(); strings.Contains(log, secret) || !strings.Contains(log, "--etcd-password-file") {
		t.Errorf("the log has the password, or no advice:\n%s", log)
	}
}
