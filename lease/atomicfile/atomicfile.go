// Package atomicfile writes files in one step, so that a reader, also one after a crash, sees the old content
// or the new.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Suffix is what a file is named by until it is complete, beside the one that it replaces: its name and this.
// A process that is killed meanwhile leaves such a file, and the next Write takes its place.
const Suffix = ".new"

// Write replaces path by content, for the owner alone (0600), as is a directory that has to be made (0700).
func Write(path string, content []byte) error {
	return WriteFunc(path, 0o600, 0o700, func(w io.Writer) error { _, err := w.Write(content); return err })
}

// WriteFunc replaces path by what write makes, with exactly the mode given, whatever the umask. It makes a
// directory that is missing with mode dir. Content and name are on the disk when it returns. If two processes
// write one path, one of them may get an error. The error names path.
func WriteFunc(path string, mode, dir fs.FileMode, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), dir); err != nil {
		return err
	}
	err := replace(path, mode, write)
	if err == nil {
		err = sync(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func replace(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	next := path + Suffix
	// A file that is there is never opened: it could be somebody else's, or lead elsewhere.
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	ours, statErr := f.Stat()
	if err = errors.Join(err, statErr, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if there, err := os.Lstat(next); err != nil || !os.SameFile(ours, there) {
		return errors.Join(errors.New("another process writes it, too"), err)
	}
	return os.Rename(next, path)
}

// sync makes a rename in dir survive a crash of the machine, on a file system that can sync a directory.
func sync(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
