package options

import (
	"strings"
	"testing"
)

func TestTheEmbeddedServerIsTheStoreUnlessAnotherIsNamed(t *testing.T) {
	for _, tt := range []struct{ args, env, want string }{
		{"--embedded-etcd", "", "unix:///var/lib/weft/etcd/client/etcd.sock"},
		{"--embedded-etcd --embedded-etcd-dir /srv/e --embedded-etcd-listen=", "",
			"unix:///srv/e/client/etcd.sock"},
		{"--embedded-etcd --embedded-etcd-listen 127.0.0.1:2379", "", "http://127.0.0.1:2379"},
		{"--embedded-etcd --embedded-etcd-listen 0.0.0.0:23 --embedded-etcd-insecure", "", "http://127.0.0.1:23"},
		{"--embedded-etcd --embedded-etcd-listen [::]:23 --embedded-etcd-insecure", "", "http://[::1]:23"},
		{"--embedded-etcd --etcd-endpoints http://192.0.2.1:1", "", "http://192.0.2.1:1"},
		{"--embedded-etcd", "FLANNELD_ETCD_ENDPOINTS=http://192.0.2.2:1", "http://192.0.2.2:1"},
		{"", "", "http://127.0.0.1:4001,http://127.0.0.1:2379"},
	} {
		c, err := Parse(strings.Fields(tt.args), []string{tt.env})
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		if got := strings.Join(c.StoreClient(nil).Endpoints, ","); got != tt.want {
			t.Errorf("%s %s: %s, want %s", tt.args, tt.env, got, tt.want)
		}
	}
}

func TestStoreFlagsOfAnotherCommand(t *testing.T) {
	f := NewStoreFlags()
	if err := f.Set.Set("etcd-prefix", "/x/"); err != nil {
		t.Fatal(err)
	}
	given := func(name string) bool { return name == "etcd-prefix" }
	s, err := f.Store(given, []string{"WEFTD_ETCD_PREFIX=/y", "FLANNELD_ETCD_ENDPOINTS=http://192.0.2.1:1",
		"WEFTD_ETCD_PASSWORD=hunter2"})
	if err != nil || s.Prefix != "/x" || s.Endpoints[0] != "http://192.0.2.1:1" ||
		s.Password.Reveal() != "hunter2" {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := NewStoreFlags().Store(func(string) bool { return false }, []string{"WEFTD_ETCD_ENDPOINTS=,"}); err == nil {
		t.Error("no endpoint is taken")
	}
}

func TestRemarks(t *testing.T) {
	c, err := Parse(strings.Fields("--etcd-username u --etcd-password hunter2 --embedded-etcd "+
		"--embedded-etcd-listen 0.0.0.0:1 --embedded-etcd-insecure"), []string{"WEFTD_NONSENSE=1"})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(c.Remarks(), "\n")
	for _, want := range []string{"--etcd-password-file", "0.0.0.0:1", "WEFTD_NONSENSE"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "hunter2") {
		t.Error("a remark shows the password")
	}
	if c, err = Parse(nil, []string{"WEFTD_ETCD_PASSWORD=x"}); err != nil || len(c.Remarks()) != 0 {
		t.Errorf("%v %q", err, c.Remarks())
	}
	if c, err = Parse([]string{"--embedded-etcd"}, nil); err != nil || len(c.Remarks()) != 0 {
		t.Errorf("the embedded server's socket: %v %q", err, c.Remarks())
	}
	c, err = Parse([]string{"--embedded-etcd", "--embedded-etcd-listen=127.0.0.1:2379"}, nil)
	if got := strings.Join(c.Remarks(), ""); err != nil || !strings.Contains(got, "local") {
		t.Errorf("the embedded server on loopback: %v %q", err, got)
	}
}
