package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"weft/lease/atomicfile"
)

func write(path, text string) error {
	return atomicfile.WriteFunc(path, 0o640, 0o700, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// wantOne wants path to be the only file of its directory, with that content.
func wantOne(t *testing.T, path, text string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("%q, %v, want %q", b, err, text)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("beside it: %v, %v", all, err)
	}
}

// The file has the mode and what was written. If that fails, what was there stays, and nothing is left beside
// it.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	path := filepath.Join(dir, "state")
	if err := write(path, "x"); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	err := atomicfile.WriteFunc(path, 0o600, 0o700, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
	wantOne(t, path, "x")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o640 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if at, err := os.Stat(dir); err != nil || at.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", at.Mode(), err)
	}
	if err := write(filepath.Join(path, "x"), ""); err == nil {
		t.Error("no error for a directory that is a file")
	}
}

// What a killed process left is replaced, and a link that somebody put there is not followed.
func TestWhatIsThereIsNotOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	other := filepath.Join(t.TempDir(), "other")
	for _, put := range []func(string) error{
		func(next string) error { return os.WriteFile(next, []byte("half of something long"), 0o600) },
		func(next string) error { return os.Symlink(other, next) },
	} {
		if err := put(path + atomicfile.Suffix); err != nil {
			t.Fatal(err)
		}
		if err := write(path, "x"); err != nil {
			t.Error(err)
		}
		wantOne(t, path, "x")
	}
	if _, err := os.Lstat(other); err == nil {
		t.Error("it was written through a link")
	}
}

// A file that another process put in place of ours meanwhile is not made the new one.
func TestAnotherWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	err := atomicfile.WriteFunc(path, 0o600, 0o700, func(io.Writer) error {
		next := path + atomicfile.Suffix
		return errors.Join(os.Remove(next), os.WriteFile(next, []byte("half"), 0o600))
	})
	if _, there := os.Lstat(path); err == nil || there == nil {
		t.Errorf("%v, and the file: %v", err, there)
	}
}
