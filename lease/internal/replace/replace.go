// Package replace writes files in one step, so that a reader, also one after a crash, sees the old content or the new.
package replace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// File replaces path by what write makes, with the mode given; a directory that is missing is made with mode dir. The umask
// does not touch the file's mode. The error names path and not the file
// for the moment, so that it is the same each time that the cause is.
func File(path string, mode, dir fs.FileMode, write func(io.Writer) error) (err error) {
	at := filepath.Dir(path)
	if err := os.MkdirAll(at, dir); err != nil {
		return err
	}
	defer func() { err = unnamed(path, err) }()
	removeLeftovers(path)
	f, err := os.CreateTemp(at, before(path)+"*") // 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // what went wrong first is what counts
		}
	}()
	if err = write(f); err == nil && mode != 0o600 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(at)
}

// leftFor is how old a file for the moment is before it counts as left by a process that was killed.
const leftFor = time.Minute

// before is what the names of path's files for the moment begin with. A number follows.
func before(path string) string { return "." + filepath.Base(path) + "." }

// ForTheMoment reports whether a file of that name, beside path, is one that File makes while it replaces path. It looks at
// the name alone.
func ForTheMoment(path, name string) bool {
	number, ours := strings.CutPrefix(name, before(path))
	return ours && number != "" && strings.Trim(number, "0123456789") == ""
}

// removeLeftovers removes path's files for the moment that a process which was killed has left. Of one that
// is killed again and again, each would leave another.
func removeLeftovers(path string) {
	dir := filepath.Dir(path)
	all, _ := os.ReadDir(dir) // what cannot be listed stays
	for _, e := range all {
		if !ForTheMoment(path, e.Name()) || !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > leftFor {
			_ = os.Remove(filepath.Join(dir, e.Name())) // the next time, else
		}
	}
}

// unnamed is err without the name that the file had for the moment, which is another one each time:
// who tries again sees that the cause is the same.
func unnamed(path string, err error) error {
	var at *fs.PathError
	var link *os.LinkError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at):
		err = at.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// syncDir makes a rename in dir survive a crash of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
