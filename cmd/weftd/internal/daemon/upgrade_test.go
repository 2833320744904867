package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A program is executed with weftd's rights only if nobody but root and weftd's own user can have put it
// where it is.
func TestWhatOthersCanWriteIsNotExecuted(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "above", "bin")
	file, link := filepath.Join(dir, "weftd"), filepath.Join(top, "link")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if real, err := mayRun(path); real != file || err != nil {
			t.Errorf("%s: %q %v", path, real, err)
		}
	}
	for _, c := range []struct {
		name, path string
		mode       os.FileMode
		may        bool
	}{
		{"a file that others write", file, 0o757, false},
		{"a sticky file that others write", file, 0o777 | os.ModeSticky, false},
		{"a file that nobody executes", file, 0o644, false},
		{"a directory that a group writes", dir, 0o775, false},
		{"a directory above it that others write", filepath.Dir(dir), 0o777, false},
		{"a sticky directory above it", filepath.Dir(dir), 0o777 | os.ModeSticky, true},
	} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := mayRun(file); (err == nil) != c.may {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := os.Chmod(c.path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	open := filepath.Join(top, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(top, "second") // a link to a link in a directory that others write
	if err := errors.Join(os.Symlink(file, filepath.Join(open, "first")), os.Symlink("open/first", second)); err != nil {
		t.Fatal(err)
	}
	if real, err := mayRun(second); real != file || err != nil {
		t.Errorf("%q %v", real, err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := mayRun(second); err == nil {
		t.Error("a link that others turn elsewhere may be started")
	}
	for _, path := range []string{"weftd", filepath.Join(dir, "none"), dir} {
		if _, err := mayRun(path); err == nil {
			t.Errorf("%s may be started", path)
		}
	}
}

// A program is executed by the path that this process was started by, so that a link that was turned to
// another release leads there.
func TestTheProgramIsWhereTheLinkLeads(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "weftd")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	for arg, want := range map[string]string{link: link, "weftd": link, own: own, "/proc/self/exe": own,
		"/bin/sh": own, "-weftd": own, "": own} {
		if got := binary(arg); got != want {
			t.Errorf("started as %q: %q, want %q", arg, got, want)
		}
	}
}
