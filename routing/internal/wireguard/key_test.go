package wireguard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStoreKeyFollowsALink has a new key take the place of the one that a link leads to, and the link stay.
func TestStoreKeyFollowsALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "elsewhere"), filepath.Join(dir, "wireguard.key")
	first, second := NewPrivateKey(), NewPrivateKey()
	err := StoreKey(file, first)
	if err = errors.Join(err, os.Symlink("elsewhere", link)); err == nil {
		err = StoreKey(link, second)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{file, link} {
		if key, _, err := LoadKey(f); err != nil || key != second {
			t.Errorf("%s has another key, %v", f, err)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != "elsewhere" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// TestSecretsDoNotPrint prints a private key in every way that logs, statuses and errors do.
func TestSecretsDoNotPrint(t *testing.T) {
	s := NewPrivateKey()
	c := struct {
		Config
		inside Secret // which fmt reads without asking for its methods
	}{Config{Private: s, Peers: []Peer{{Preshared: s}}}, s}
	var all strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q", "%d"} {
		_, _ = fmt.Fprintf(&all, verb+" "+verb+" "+verb, s, &s, c)
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all.Write(b)
	_, bad := ParseSecret(s.open().String() + "x")
	all.WriteString(bad.Error())
	for _, form := range []string{s.open().String(), fmt.Sprintf("%x", [32]byte(s.open())),
		strings.Trim(fmt.Sprint([32]byte(s.open())), "[]"),
		s.open().String()[:20]} {
		if strings.Contains(all.String(), form) {
			t.Errorf("%q is in %s", form, all.String())
		}
	}
}

func TestKeyFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "wireguard.key")
	made, fresh, err := LoadKey(file)
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	again, fresh, err := LoadKey(file)
	if err != nil || fresh || again != made {
		t.Fatal(fresh, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if err := os.WriteFile(file+".new", []byte("what a crash left"), 0o644); err != nil {
		t.Fatal(err)
	}
	next := NewPrivateKey()
	if err := StoreKey(file, next); err != nil {
		t.Fatal(err)
	}
	if got, _, err := LoadKey(file); err != nil || got != next {
		t.Error(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		content string
		mode    os.FileMode
		want    []string
	}{
		{string(good), 0o640, []string{"mode 0640", "delete it"}},
		{string(good), 0o604, []string{"mode 0604"}},
		{string(good[:20]), 0o600, []string{"it is no key", "delete the file"}},
		{"", 0o600, []string{"has 0"}},
		{strings.Repeat("A", 43) + "=", 0o600, []string{"zeros"}},
		{strings.TrimSpace(string(good)), 0o400, nil}, // as flannel writes it
	} {
		if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte(c.content), 0o600),
			os.Chmod(file, c.mode)); err != nil {
			t.Fatal(err)
		}
		got, _, err := LoadKey(file)
		if c.want == nil {
			if err != nil || got != next {
				t.Errorf("%q: %v", c.content, err)
			}
			continue
		}
		for _, w := range append(c.want, file) {
			if !errors.Is(err, ErrKeyFile) || !strings.Contains(err.Error(), w) ||
				strings.Contains(err.Error(), string(good[:20])) {
				t.Errorf("%q, mode %o: %v, want %q", c.content, c.mode, err, w)
			}
		}
		if b, err := os.ReadFile(file); err != nil || string(b) != c.content {
			t.Errorf("the file was changed: %q, %v", b, err)
		}
	}
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadKey(file); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a directory: %v", err)
	}
}
