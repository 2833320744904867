package attach

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestSaveLoadRemove(t *testing.T) {
	d := Dir(filepath.Join(t.TempDir(), "a", "b"))
	id := ID{"c0ffee", "eth0"}
	for _, text := range []string{"one", "two"} {
		if err := d.Save(id, []byte(text)); err != nil {
			t.Fatal(err)
		}
		rec, err := d.Load(id)
		if err != nil || string(rec.Text) != text || rec.Flannel || rec.ID != id {
			t.Fatalf("got %+v, %v", rec, err)
		}
		if flannels, err := os.ReadFile(filepath.Join(string(d), "c0ffee")); err != nil ||
			string(flannels) != text {
			t.Fatalf("flannel's plugin would read %q, %v", flannels, err)
		}
	}
	modes := map[string]fs.FileMode{string(d): 0o700, d.own(id): 0o600}
	for path, want := range modes {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	rec, err := d.Load(id)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Remove(rec); err != nil {
			t.Fatal(err)
		}
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if _, err := d.Load(id); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func names(t *testing.T, d Dir) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(string(d))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestTwoInterfacesOfOneContainer(t *testing.T) {
	d := Dir(t.TempDir())
	a, b := ID{"x", "eth0"}, ID{"x", "net1"}
	for _, id := range []ID{a, b} {
		if err := d.Save(id, []byte(id.Interface)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []ID{b, a} { // the other's file is not touched
		rec, err := d.Load(id)
		if err != nil || string(rec.Text) != id.Interface {
			t.Fatalf("%s: got %q, %v", id, rec.Text, err)
		}
		if err := d.Remove(rec); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after its removal: %v", id, err)
		}
	}
	if left := names(t, d); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// Two attachments never have the same name, whatever characters an id and an interface's name contain.
func TestNamesAreDistinct(t *testing.T) {
	d := Dir(t.TempDir())
	ids := []ID{{"a-b", "c"}, {"a", "b-c"}, {"a.b", "c"}, {"a", "b.c"}, {"a_b", "c"}}
	for _, id := range ids {
		if err := d.Save(id, []byte(id.String())); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if rec, err := d.Load(id); err != nil || string(rec.Text) != id.String() {
			t.Errorf("%s: got %q, %v", id, rec.Text, err)
		}
	}
}

func TestFlannelsFile(t *testing.T) {
	d := Dir(t.TempDir())
	if err := os.WriteFile(filepath.Join(string(d), "x"), []byte("flannel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(ID{"x", "net1"}, []byte("ours")); err != nil { // beside it
		t.Fatal(err)
	}
	rec, err := d.Load(ID{"x", "eth0"})
	if err != nil || string(rec.Text) != "flannel" || !rec.Flannel {
		t.Fatalf("got %+v, %v", rec, err)
	}
	if err := d.Remove(rec); err != nil {
		t.Fatal(err)
	}
	if got := names(t, d); !slices.Equal(got, []string{"x:net1"}) {
		t.Errorf("left: %q", got)
	}
}

func TestHostileNames(t *testing.T) {
	parent := t.TempDir()
	d := Dir(filepath.Join(parent, "state"))
	for _, id := range []ID{
		{"../x", "eth0"}, {"..", "eth0"}, {"", "eth0"}, {"a/b", "eth0"}, {"a:b", "eth0"}, {".weft-1", "eth0"},
		{"a\x00", "eth0"},
		{"a", ""}, {"a", "../b"}, {"a", ".."}, {"a", "b:c"}, {"a", "b c"}, {"a", "longer-than-fifteen"},
	} {
		var e *types.Error
		if err := d.Save(id, nil); !errors.As(err, &e) {
			t.Errorf("save %q: %v", id, err)
		}
		if _, err := d.Load(id); !errors.As(err, &e) {
			t.Errorf("load %q: %v", id, err)
		}
	}
	if got := names(t, Dir(parent)); len(got) > 0 {
		t.Errorf("made %q", got)
	}
	if err := d.Save(ID{strings.Repeat("a", 300), "eth0"}, nil); err == nil {
		t.Error("a name that no file system takes")
	}
	if got := names(t, d); len(got) > 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestList(t *testing.T) {
	d := Dir(t.TempDir())
	if records, err := Dir(filepath.Join(string(d), "missing")).List(); err != nil || len(records) > 0 {
		t.Errorf("got %v, %v", records, err)
	}
	for _, id := range []ID{{"a", "eth0"}, {"a", "net1"}, {"b", "eth0"}} {
		if err := d.Save(id, []byte(id.String())); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(string(d), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("c", "flannel's")
	write(".hidden", "not ours")
	write("-x", "not ours")
	if err := os.Mkdir(filepath.Join(string(d), "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(string(d), "link:eth0")); err != nil {
		t.Fatal(err)
	}
	records, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range records {
		got = append(got, r.ID.Container+"/"+r.ID.Interface+"="+string(r.Text))
	}
	want := []string{"a/eth0=" + ID{"a", "eth0"}.String(), "a/net1=" + ID{"a", "net1"}.String(),
		"b/eth0=" + ID{"b", "eth0"}.String(), "c/=flannel's"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	write("d:eth0", strings.Repeat("x", maxText+1))
	if records, err := d.List(); err == nil || !strings.Contains(err.Error(), "d:eth0") ||
		len(records) != len(want) {
		t.Errorf("with a file too large: %d records, %v", len(records), err)
	}
}
