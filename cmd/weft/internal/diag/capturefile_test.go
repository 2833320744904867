package diag

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A capture has what pods say. It goes to a new file that only its user can read, and never to what somebody
// else laid at that name.
func TestCaptureFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("kept"), []byte("old and longer"), 0o666), os.Symlink(at("kept"), at("link")),
		os.Link(at("kept"), at("twin")),
		os.Symlink(at("nothing"), at("dangling")), syscall.Mkfifo(at("pipe"), 0o600))
	// a pipe that is read could be written to
	reader, err := os.OpenFile(at("pipe"), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	must(err)
	defer func() { _ = reader.Close() }() // only read
	names := []string{"new", "kept", "link", "dangling", "pipe"}
	forced := map[string]bool{"new": true, "kept": true}
	must(os.WriteFile(at("theirs"), nil, 0o666))
	if os.Chown(at("theirs"), 12345, 12345) == nil { // only root of the machine can
		names = append(names, "theirs")
	}
	for _, name := range names {
		for _, force := range []bool{false, true} {
			f, err := captureFile(at(name), force)
			want := force && forced[name] || name == "new" && !force
			if (err == nil) != want {
				t.Errorf("%s, force %v: %v", name, force, err)
			}
			if err == nil {
				_, err = io.WriteString(f, "packets")
				must(err, f.Close())
				info, err := os.Lstat(at(name))
				must(err)
				if info.Mode() != 0o600 || info.Size() != int64(len("packets")) {
					t.Errorf("%s, force %v: mode %v, %d bytes", name, force, info.Mode(), info.Size())
				}
			}
		}
	}
	if b, err := os.ReadFile(at("twin")); err != nil || string(b) != "old and longer" {
		t.Errorf("another name of the file that was there: %q, %v", b, err)
	}
	if _, err := os.Lstat(at("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a dangling link was followed: %v", err)
	}
}
