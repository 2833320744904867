package hostlocal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"10.0.0.2":           "b\r\neth0",
		"fd00::2":            "b\r\neth0",
		"10.0.0.3":           "a\neth0\n",
		"10.0.0.4":           "old",
		"last_reserved_ip.0": "10.0.0.4",
		"lock":               "",
	} {
		path := filepath.Join(dir, "net", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []Holder{{"a", "eth0"}, {"b", "eth0"}, {"old", ""}}
	if got, err := Holders(dir, "net"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := Holders(dir, "other"); err != nil || len(got) > 0 {
		t.Errorf("of a network without reservations: %q, %v", got, err)
	}
	if _, err := Holders(dir, "../net"); err == nil {
		t.Error("a name that leads elsewhere")
	}
	for _, text := range []string{"", "../../x\neth0", "a\n../eth0", "a b\neth0",
		strings.Repeat("\x00", 10000)} {
		if err := os.WriteFile(filepath.Join(dir, "net", "10.0.0.9"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Holders(dir, "net"); err == nil || !strings.Contains(err.Error(), "10.0.0.9") ||
			!slices.Equal(got, want) {
			t.Errorf("with %.20q: %q, %v", text, got, err)
		}
	}
}
