package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file that was there becomes private and is begun anew, a pipe is not waited for, and what is another's is left alone.
func TestCaptureFile(t *testing.T) {
	dir := t.TempDir()
	was := filepath.Join(dir, "was")
	if err := os.WriteFile(was, []byte("older and longer"), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := captureFile(was)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(f, "new")
	if closed := f.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	info, err := os.Stat(was)
	if b, _ := os.ReadFile(was); err != nil || string(b) != "new" || info.Mode().Perm() != 0o600 {
		t.Errorf("%q %v %v", b, info, err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := captureFile(pipe); err == nil || !strings.Contains(err.Error(), "nobody reads") {
		t.Errorf("a pipe: %v", err)
	}
	if f, err = captureFile("/dev/null"); err != nil {
		t.Error(err)
	} else if err := f.Close(); err != nil {
		t.Error(err)
	}
	if os.Geteuid() != 0 {
		return // only root can make another user's file
	}
	if err := os.Chown(was, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if _, err := captureFile(was); err == nil || !strings.Contains(err.Error(), "another user") {
		t.Errorf("another user's file: %v", err)
	}
	if b, _ := os.ReadFile(was); string(b) != "new" {
		t.Errorf("another user's file has %q", b)
	}
}
