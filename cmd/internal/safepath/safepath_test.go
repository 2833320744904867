package safepath

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"weft/test/netns"
)

const nobody = 65534

// TestCheck: whoever may write to the file, to a directory above it or above a link on the way, or owns one
// of them, may change what the path leads to.
func TestCheck(t *testing.T) {
	netns.Root(t, "only root can give files away")
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := func(name string) string { return filepath.Join(top, name) }
	if err := errors.Join(
		os.MkdirAll(p("a/b"), 0o755), os.MkdirAll(p("links/far"), 0o755), os.WriteFile(p("a/b/file"), nil, 0o644),
		os.Symlink("../links/far/second", p("a/first")), os.Symlink(p("a/b/file"), p("links/far/second")),
		os.Symlink("loop", p("loop")),
	); err != nil {
		t.Fatal(err)
	}
	file, link := p("a/b/file"), p("a/first")
	for _, path := range []string{file, link, top + "//a/./b/../b/file"} {
		if real, err := Check(path); real != file || err != nil {
			t.Errorf("%s: %q %v", path, real, err)
		}
	}
	for _, c := range []struct {
		name, what string
		mode       os.FileMode
		uid        int
		file, link bool // whether the path may be trusted
	}{
		{"a file that others write", "a/b/file", 0o646, 0, false, false},
		{"a sticky file that others write", "a/b/file", 0o646 | os.ModeSticky, 0, false, false},
		{"a file that a group writes", "a/b/file", 0o664, 0, false, false},
		{"another's file", "a/b/file", 0o644, nobody, false, false},
		{"a directory that others write", "a/b", 0o777, 0, false, false},
		{"a directory far above that others write", "a", 0o777, 0, false, false},
		{"another's directory far above", "a", 0o755, nobody, false, false},
		{"a sticky directory", "a", 0o777 | os.ModeSticky, 0, true, true},
		{"another's directory above a link", "links/far", 0o755, nobody, true, false},
		{"a directory far above a link that others write", "links", 0o777, 0, true, false},
		{"a sticky directory above a link", "links/far", 0o777 | os.ModeSticky, 0, true, true},
	} {
		if err := errors.Join(os.Lchown(p(c.what), c.uid, 0), os.Chmod(p(c.what), c.mode)); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]bool{file: c.file, link: c.link} {
			if _, err := Check(path); (err == nil) != want {
				t.Errorf("%s: %s: %v", c.name, path, err)
			}
		}
		back := os.FileMode(0o755)
		if c.what == "a/b/file" {
			back = 0o644
		}
		if err := errors.Join(os.Lchown(p(c.what), 0, 0), os.Chmod(p(c.what), back)); err != nil {
			t.Fatal(err)
		}
	}

	// In a sticky directory a link is its owner's, who may replace it. Elsewhere its owner may do nothing with
	// it.
	if err := os.Lchown(link, nobody, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(link); err != nil {
		t.Errorf("another's link in a directory of ours: %v", err)
	}
	if err := os.Chmod(p("a"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(link); err == nil {
		t.Error("another's link in a sticky directory is trusted")
	}
	if _, err := Check(p("none/file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	if _, err := Check(p("loop")); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
}

// TestCheckReadOnly: nobody writes into a directory that is mounted for reading alone, as a ConfigMap's is.
func TestCheckReadOnly(t *testing.T) {
	netns.Root(t, "only root can have a directory that another user owns")
	dir := t.TempDir()
	runtime.LockOSThread() // not unlocked: the thread ends with the test, and its mounts with it
	if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		t.Fatal(err)
	}
	mount := func(flags uintptr) error { return unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0777") }
	if err := mount(0); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	file := filepath.Join(dir, "net-conf.json")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(file); err == nil {
		t.Error("a directory that others write is trusted")
	}
	if err := mount(unix.MS_REMOUNT | unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(file); err != nil {
		t.Errorf("mounted for reading alone: %v", err)
	}
}
