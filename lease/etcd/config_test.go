package etcd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCheck(t *testing.T) {
	t.Parallel()
	junk := write(t, "junk", "no PEM", 0o600)
	open := write(t, "open", "pw\n", 0o644)
	empty := write(t, "empty", "\npw\n", 0o600)
	closed := write(t, "closed", "pw\r\nmore", 0o600)
	cases := []struct {
		name    string
		cfg     Config
		errs    []string
		warning string
	}{
		{"flannel's defaults", Config{}, nil, ""},
		{"all faults at once", Config{Prefix: "/", CertFile: junk, Endpoints: []string{"ftp://x:1"}},
			[]string{"etcd prefix", "key file", "ftp"}, ""},
		{"key without certificate", Config{KeyFile: junk}, []string{"certificate file"}, ""},
		{"CA that is none", Config{CAFile: junk}, []string{"PEM"}, ""},
		{"no CA", Config{CAFile: "/nonexistent"}, []string{"CA file", "/nonexistent"}, ""},
		{"pair that is none", Config{CertFile: junk, KeyFile: junk}, []string{"etcd certificate " + junk}, ""},
		{"mixed", Config{Endpoints: []string{"http://a:1", "https://b:1"}}, []string{"https"}, ""},
		{"user in URL", Config{Endpoints: []string{"http://u:hunter2@a:1"}}, []string{"URL"}, ""},
		{"no URL", Config{Endpoints: []string{"://hunter2"}}, []string{"endpoint 1"}, ""},
		{"user only", Config{Username: "u"}, nil, "password"},
		{"password in clear", Config{Username: "u", Password: NewSecret("pw")}, nil, "in clear"},
		{"open password file", Config{Username: "u", PasswordFile: open}, nil, "0644"},
		{"empty password file", Config{Username: "u", PasswordFile: empty}, []string{"empty"}, ""},
		{"no password file", Config{Username: "u", PasswordFile: "/nonexistent"},
			[]string{"password file", "/nonexistent"}, ""},
		{"closed password file", Config{Username: "u", PasswordFile: closed, Endpoints: []string{"https://a:1"}},
			nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			warnings, err := c.cfg.Check()
			if (err == nil) != (c.errs == nil) {
				t.Fatalf("error %v, want %q", err, c.errs)
			}
			for _, want := range c.errs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error shows a password: %v", err)
			}
			if err != nil {
				return
			}
			if got := strings.Join(warnings, "; "); !strings.Contains(got, c.warning) || c.warning == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r, err := Config{}.resolve()
	if err != nil || r.Prefix != "/coreos.com/network" ||
		!slices.Equal(r.Endpoints, []string{"http://127.0.0.1:4001", "http://127.0.0.1:2379"}) {
		t.Errorf("defaults: %v %v, %v", r.Prefix, r.Endpoints, err)
	}
	in := []string{"a:1"}
	r, err = Config{
		Endpoints: in, Prefix: "//x/net/",
		PasswordFile: write(t, "pw", "pw\r\nmore", 0o600), Username: "u",
	}.resolve()
	if err != nil || r.Endpoints[0] != "http://a:1" || r.Prefix != "/x/net" || r.Password.Reveal() != "pw" {
		t.Errorf("%v %v %q, %v", r.Endpoints, r.Prefix, r.Password.Reveal(), err)
	}
	if in[0] != "a:1" {
		t.Error("the caller's slice was changed")
	}
	if k := newKeys(r.Prefix); k.config != "/x/net/config" || k.subnets != "/x/net/subnets" {
		t.Errorf("keys %+v", k)
	}
}

func TestSecretIsNeverShown(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	cfg := Config{Username: "u", Password: NewSecret(password), Endpoints: []string{"https://127.0.0.1:1"}}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	values := []any{cfg, &cfg, cfg.Password, &cfg.Password, *s.config(), &s.cfg, s, struct{ c Config }{cfg},
		[]Config{cfg}, map[string]Secret{"x": cfg.Password}}
	for _, v := range values {
		for _, verb := range "vsdqxXpTtbcoOUeEfFgG" {
			for _, flag := range []string{"", "+", "#", " ", "0", "-"} {
				fmt.Fprintf(&out, "%"+flag+string(verb)+"\n", v)
			}
		}
		b, err := json.Marshal(v)
		fmt.Fprintln(&out, string(b), err)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("x", "v", v)
		}
	}
	hex := fmt.Sprintf("%x", password)
	for _, show := range []string{password, hex, strings.ToUpper(hex),
		strings.Trim(fmt.Sprint([]byte(password)), "[]")} {
		if i := strings.Index(out.String(), show); i >= 0 {
			t.Errorf("the password shows: …%s…", out.String()[max(0, i-80):i+len(show)])
		}
	}
	if s.config().Password.Reveal() != password {
		t.Error("the password is lost")
	}
}
