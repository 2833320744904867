package main

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs weftd --check on h, and returns what it prints.
func (h *host) check(args ...string) (out string, ok bool) {
	cmd := h.command(append(args, "--check")...)
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := h.ns.Run(cmd)
	return b.String(), err == nil
}

// --check asks the store as weftd would when it starts, checks the configuration that the store has, and
// reports every fault at once and none twice.
func TestCheckAsksTheStore(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	forwards(t, b)
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "net.json")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--net-config-path=" + name
	}
	for _, tt := range []struct {
		name string
		args []string
		want []string // of a fault once each; of none if the first is "no faults"
	}{
		{"all is well", nil, []string{"no faults", "network-config, ok: 10.42.0.0/16, backend udp, from " +
			"/coreos.com/network/config", "1472 inside", "records under /coreos.com/network/subnets: 1"}},
		{"nobody there", []string{"--etcd-endpoints=http://127.0.0.1:9"},
			[]string{"- store-endpoint: http://127.0.0.1:9: "}},
		{"nobody is asked", []string{"--etcd-endpoints=http://127.0.0.1:9", "--offline"},
			[]string{"no faults", "was not asked"}},
		{"an empty store", []string{"--etcd-prefix=/none"}, []string{"- network-config: /none/config: "}},
		{"an empty store and a file for it", []string{"--etcd-prefix=/none", file(`{"Network":"10.7.0.0/16"}`)},
			[]string{"no faults", "10.7.0.0/16"}},
		{"misspelt keys", []string{"--offline",
			file(
				`{"Network":"10.7.0.0/16","SubnetLenght":25,"Backend":{"Type":"udp","SorceCheck":"off","Prot":8285}}`)},
			[]string{"SubnetLenght is not known, and has no effect; did you mean SubnetLen?",
				"Backend.SorceCheck is not known, and has no effect; did you mean Backend.SourceCheck?",
				"did you mean Backend.Port?"}},
		{"flannel's keys of other types", []string{"--offline",
			file(
				`{"Network":"10.7.0.0/16","EnableNFTables":true,"Backend":{"Type":"vxlan","GBP":true,"PersistentKeepaliveInterval":25}}`)}, []string{"no faults"}},
		{"addresses of this host alone", []string{"--offline", "--public-ip=127.0.0.1",
			file(`{"Network":"127.0.0.0/8"}`)},
			[]string{"- --public-ip 127.0.0.1: no other host can send to it", "Network is 127.0.0.0/8"}},
		{"several bad flags", []string{"--healthz-port=x", "--ifcae=eth0", "--iface-regex=(", "--nonsense",
			"--log-format=xml", "--etcd-endpoints=http://127.0.0.1:9"},
			[]string{`"x" for flag -healthz-port`, "-ifcae; did you mean --iface?", "error parsing regexp",
				"-nonsense", "--log-format is", "- store-endpoint: "}},
		{"a backend that does not start", []string{"--offline", "--allow-extension",
			file(`{"Network":"10.7.0.0/16","Backend":{"Type":"extension","PreStartupCommand":"nosuch x"}}`)},
			[]string{`Backend.PreStartupCommand: exec: "nosuch"`}},
		{"the kernel may carry vxlan",
			[]string{"--offline", file(`{"Network":"10.7.0.0/16","EnableIPv6":false,"Backend":{"Type":"vxlan"}}`)},
			[]string{"no faults", "kernel-feature, ok"}},
		{"weft may have to carry vxlan",
			[]string{"--offline", file(`{"Network":"10.7.0.0/16","EnableIPv6":false,"Backend":{"Type":"auto"}}`)},
			[]string{"no faults", "tun-device, ok"}},
		{"an underlay that is too small", []string{"--offline",
			file(`{"Network":"10.7.0.0/16","EnableIPv6":false,"Backend":{"Type":"vxlan","MTU":576}}`)},
			[]string{"no faults", "526 inside"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, ok := b.check(tt.args...)
			if ok != (tt.want[0] == "no faults") {
				t.Errorf("no faults: %v", ok)
			}
			for _, want := range tt.want {
				if n := strings.Count(out, want); n != 1 {
					t.Errorf("%q is there %d times", want, n)
				}
			}
			if t.Failed() {
				t.Logf("%s", out)
			}
		})
	}
}

// TestCheckAgreesWithItsExitStatus: a fault of the host is one of the check's, as it is weft doctor's.
func TestCheckAgreesWithItsExitStatus(t *testing.T) {
	t.Parallel()
	a, b := pair(t)
	a.start(t)
	a.awaitReady(t)
	out, ok := b.check() // the namespace is new, and does not forward
	if ok || !strings.Contains(out, "\n- forwarding-ipv4: ") || strings.Contains(out, "no faults") {
		t.Errorf("no faults: %v\n%s", ok, out)
	}
	forwards(t, b)
	if out, ok := b.check(); !ok || strings.Contains(out, ", fault: ") || strings.Contains(out, "FAULTS") {
		t.Errorf("no faults: %v\n%s", ok, out)
	}
}

func forwards(t *testing.T, h *host) {
	t.Helper()
	if err := h.ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
}

// If etcd demands a client certificate, --check reports that there is none.
func TestCheckMeetsWhatTheStoreDemands(t *testing.T) {
	t.Parallel()
	_, b := wired(t)
	s := httptest.NewUnstartedServer(nil)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	_ = s.Listener.Close()
	err := b.ns.Do(func() (err error) { s.Listener, err = net.Listen("tcp", "127.0.0.1:0"); return err })
	if err != nil {
		t.Fatal(err)
	}
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	out, ok := b.check("--etcd-endpoints=https://"+s.Listener.Addr().String(), "--etcd-cafile="+ca)
	if ok || !strings.Contains(out, "- store-endpoint: ") || !strings.Contains(out, "--etcd-certfile") {
		t.Errorf("no faults: %v\n%s", ok, out)
	}
}
