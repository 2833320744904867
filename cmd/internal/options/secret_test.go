package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"weft/lease/kube"
)

func TestNoVerbPrintsASecret(t *testing.T) {
	const secret = "hunter2"
	c, err := Parse([]string{"--etcd-username", "u", "--etcd-password", secret}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Store.Password.Reveal() != secret {
		t.Fatal("the password is lost")
	}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p", "%t"} {
		for _, v := range []any{c, &c, c.Store, &c.Store, c.Store.Password, &c.Store.Password, []any{c},
			map[string]any{"c": c}, struct{ c Config }{c}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("config", "config", c, "pointer", &c, "password", c.Store.Password)
	}
	if err := json.NewEncoder(&out).Encode(c); err != nil {
		t.Fatal(err)
	}
	hex := fmt.Sprintf("%x", secret)
	for _, needle := range []string{secret, hex, strings.ToUpper(hex), fmt.Sprint([]byte(secret))} {
		if i := strings.Index(out.String(), needle); i >= 0 {
			t.Errorf("%q is printed: …%s…", needle, out.String()[max(0, i-60):min(out.Len(), i+20)])
		}
	}
	if !strings.Contains(out.String(), `{Name:etcd-password Value:set Source:flag}`) {
		t.Error("the setting does not show that a password is set")
	}
}

// A URL with a password in it, which nobody should write, is shown without the password.
func TestNoURLShowsAPassword(t *testing.T) {
	const secret = "hunter2"
	for _, args := range [][]string{
		{"--etcd-endpoints=http://u:hunter2@192.0.2.1:2379,https://u:hunter2@192.0.2.2"},
		{"--etcd-endpoints=u:hunter2@192.0.2.1:2379"},
		{"--etcd-endpoints=ftp://u:hunter2@192.0.2.1"},
		{"--etcd-endpoints=http:/u:hunter2@192.0.2.1"},
		{"--etcd-endpoints=http://u:hunter2/@x@192.0.2.1:no%zzport"},
		{"--etcd-endpoints", "http://u:p@192.0.2.1", "--embedded-etcd"},
		{"--kube-subnet-mgr", "--kube-api-url=https://u:hunter2@192.0.2.1:6443"},
		{"--kube-subnet-mgr", "--kube-api-url=https://u:hunter2@192.0.2.1:%zz"},
	} {
		for _, env := range []bool{false, true} {
			given, environ := args, []string(nil)
			if name, value, ok := strings.Cut(args[len(args)-1], "="); env && ok {
				given = args[:len(args)-1]
				environ = []string{"FLANNELD_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(name, "--"), "-",
					"_")) + "=" + value}
			}
			c, err := Parse(given, environ)
			_, checked := c.StoreClient(nil).Check()
			text := fmt.Sprintln(err, c.Settings, c.Remarks(), checked)
			if c.Kube.On {
				text += fmt.Sprintln(kube.Config{APIURL: c.Kube.APIURL, NodeName: "n"}.Check())
			}
			if strings.Contains(text, secret) || !strings.Contains(text, "192.0.2.1") {
				t.Errorf("%q: %s", args, text)
			}
		}
	}
}
