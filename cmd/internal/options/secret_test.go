package options

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
		for _, v := range []any{c, &c, c.Store, &c.Store, c.Store.Password, &c.Store.Password, []any{c}, map[string]any{"c": c}, struct{ c Config }{c}} {
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
