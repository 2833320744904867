package image

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft/test/netns"
)

// oneHost makes a namespace with an interface and a default route.
func oneHost(t *testing.T) *netns.Namespace {
	t.Helper()
	ns := netns.New(t, "image")
	for _, line := range []string{
		"link add name eth0 type veth peer name far", "link set far up", "addr add 192.0.2.1/24 dev eth0",
		"addr add 2001:db8::1/64 dev eth0 nodad", "link set eth0 up", "route add default via 192.0.2.2", "-6 route add default via 2001:db8::2",
	} {
		cmd := exec.Command("ip", strings.Fields(line)...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := ns.Run(cmd); err != nil {
			t.Fatalf("%v: %v: %s", cmd.Args, err, &out)
		}
	}
	return ns
}

// attempt runs weftd in an image, alone and with an embedded etcd.
type attempt struct {
	config       string // the network config
	capabilities []string
	mounts       []Mount
}

// until runs weftd until ok is true for what /readyz says, or weftd ends. It returns weftd's log, and
// the last answer with what weft status says in the same container below it.
func (a attempt) until(t *testing.T, s rootFS, ok func(status int, body string) bool) (log, answer string) {
	t.Helper()
	if !json.Valid([]byte(a.config)) {
		t.Fatalf("not JSON: %s", a.config)
	}
	ns, dir := oneHost(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "net-conf.json"), []byte(a.config), 0o644); err != nil {
		t.Fatal(err)
	}
	mounts := append([]Mount{{Source: dir, Target: "/etc/kube-flannel", ReadOnly: true}}, a.mounts...)
	for _, target := range []string{"/run/flannel", "/run/weft", "/var/lib/weft"} {
		source := filepath.Join(dir, filepath.Base(target)+"-of-"+filepath.Base(filepath.Dir(target)))
		if err := os.Mkdir(source, 0o755); err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, Mount{Source: source, Target: target})
	}
	var out bytes.Buffer
	c := Container{
		Root: s.dir, ReadOnly: true, Capabilities: a.capabilities, Net: ns.FD(), Env: s.environment(), Stdout: &out, Stderr: &out, Mounts: mounts,
		Args: []string{"/opt/bin/weftd", "--embedded-etcd", "--net-config-path=/etc/kube-flannel/net-conf.json", "--ip-masq",
			"--healthz-ip=127.0.0.1", "--healthz-port=8081"},
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // waited for below
	client := &http.Client{Transport: &http.Transport{DialContext: ns.Dial, DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var status int
		if status, answer = readyz(ctx, client); ok(status, answer) {
			ask := c
			ask.Args = []string{"weft", "status"}
			text, err := output(t, ask)
			stop()
			end := <-ended // until then the process writes to out
			return out.String(), fmt.Sprintf("%s\n%sweft status: %v; weftd: %v", answer, text, err, end)
		}
		select {
		case <-tick.C:
		case err := <-ended:
			return out.String(), fmt.Sprintf("ended: %v; %s", err, answer)
		}
	}
}

func readyz(ctx context.Context, client *http.Client) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:8081/readyz", nil)
	if err != nil {
		return 0, err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// capabilitiesSuffice runs each backend with the capabilities that the manifests give it, a read-only root
// and a read-only /proc/sys.
func capabilitiesSuffice(t *testing.T, whole, minimal rootFS) {
	tun := []Mount{{Source: "/dev/net/tun", Target: "/dev/net/tun"}}
	lock := filepath.Join(t.TempDir(), "xtables.lock")
	if err := os.WriteFile(lock, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	xtables := []Mount{{Source: lock, Target: "/run/xtables.lock"}}
	admin, raw := []string{"NET_ADMIN"}, []string{"NET_ADMIN", "NET_RAW"}
	nft := func(backend string) string {
		return `{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd42::/48","EnableNFTables":true,"Backend":` + backend + `}`
	}
	for _, c := range []struct {
		name    string
		image   rootFS
		attempt attempt
		want    string // in weft status
	}{
		{"vxlan", minimal, attempt{nft(`{"Type":"vxlan"}`), admin, nil}, "vxlan"},
		{"host-gw", minimal, attempt{nft(`{"Type":"host-gw"}`), admin, nil}, "host-gw"},
		{"udp", minimal, attempt{nft(`{"Type":"udp"}`), raw, tun}, "raw"},
		{"udp without NET_RAW", minimal, attempt{nft(`{"Type":"udp"}`), admin, tun}, "socket"},
		{"vxlan in user space", minimal, attempt{nft(`{"Type":"vxlan","Userspace":"always"}`), raw, tun}, "raw"},
		{"vxlan with iptables", whole, attempt{`{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`, raw, xtables}, "vxlan"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, answer := c.attempt.until(t, c.image, func(status int, _ string) bool { return status == http.StatusOK })
			if !strings.Contains(answer, "is ready") || !strings.Contains(answer, c.want) || !strings.Contains(answer, "weft status: <nil>; weftd: <nil>") {
				t.Errorf("%s: want ready, and %q:\n%s", answer, c.want, log)
			}
			t.Log(answer)
		})
	}
	for _, c := range []struct {
		name    string
		attempt attempt
		want    string
	}{
		{"vxlan without NET_ADMIN", attempt{nft(`{"Type":"vxlan"}`), nil, nil}, "not permitted"},
		{"udp without the device", attempt{nft(`{"Type":"udp"}`), raw, nil}, "/dev/net/tun"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, answer := c.attempt.until(t, minimal, func(_ int, body string) bool { return strings.Contains(body, c.want) })
			if !strings.Contains(log+answer, c.want) {
				t.Errorf("%s: want %q:\n%s", answer, c.want, log)
			}
			t.Log(answer)
		})
	}
}

// refusesIptables checks that weftd says what to do in an image without iptables.
func refusesIptables(t *testing.T, minimal rootFS) {
	a := attempt{`{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`, []string{"NET_ADMIN", "NET_RAW"}, nil}
	log, answer := a.until(t, minimal, func(_ int, body string) bool { return strings.Contains(body, "EnableNFTables") })
	if !strings.Contains(answer+log, "set EnableNFTables in the network config") {
		t.Errorf("%s\n%s", answer, log)
	}
	t.Log(answer)
}
