package lease

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"weft/lease/internal/replace"
)

// Leftovers are what a process that was killed while it replaced one of the files at paths has left
// beside it: regular files of this user with names of files for the moment (replace.ForTheMoment),
// last changed longer than age ago. The error joins what could not be read.
func Leftovers(age time.Duration, paths ...string) ([]string, error) {
	var out []string
	var faults []error
	for _, path := range paths {
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			faults = append(faults, err)
		}
		for _, e := range entries {
			if !replace.ForTheMoment(path, e.Name()) {
				continue
			}
			info, err := e.Info()
			if err != nil { // it is gone
				continue
			}
			owner, known := info.Sys().(*syscall.Stat_t)
			if info.Mode().IsRegular() && known && int(owner.Uid) == os.Geteuid() && time.Since(info.ModTime()) > age {
				out = append(out, filepath.Join(filepath.Dir(path), e.Name()))
			}
		}
	}
	return out, errors.Join(faults...)
}
