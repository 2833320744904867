package lease

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Leftovers are what a process that was killed while it replaced one of the files at paths has left
// beside it: regular files of this user whose names are a dot, the file's name, a dot and digits,
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
			digits, ours := strings.CutPrefix(e.Name(), "."+filepath.Base(path)+".")
			if !ours || digits == "" || strings.Trim(digits, "0123456789") != "" {
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
