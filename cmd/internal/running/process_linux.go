// Package running reads with what a running weftd was started, also of one that does not answer.
package running

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"weft/cmd/internal/options"
)

// Process is a running weftd. Args, of which the first is the program, and Environ may hold a password.
type Process struct {
	PID           int
	Args, Environ []string
}

// Read reads the command line and the variables of the process with that pid.
func Read(pid int) (Process, error) {
	p := Process{PID: pid}
	if pid <= 0 {
		return p, errors.New("no process of weftd is known")
	}
	words := func(file string) ([]string, error) {
		b, err := os.ReadFile(p.file(file))
		if err != nil || len(b) == 0 {
			return nil, err
		}
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
	}
	args, err := words("cmdline")
	environ, errEnviron := words("environ")
	p.Args, p.Environ = args, environ
	if err = errors.Join(err, errEnviron); err == nil && len(args) == 0 {
		err = fmt.Errorf("process %d has no command line", pid)
	}
	return p, err
}

func (p Process) file(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.PID), name)
}

// Settings returns those with which weftd was started. They are as complete as they could be read also with an error.
func (p Process) Settings() (options.Config, error) {
	if len(p.Args) == 0 {
		return options.Parse(nil, nil)
	}
	return options.Parse(p.Args[1:], p.Environ)
}

// Path returns where this process finds the file that weftd calls path: weftd may run in a container, and path may be
// relative to its directory.
func (p Process) Path(path string) string {
	if !filepath.IsAbs(path) {
		cwd, err := os.Readlink(p.file("cwd"))
		if err != nil {
			return path
		}
		path = filepath.Join(cwd, path)
	}
	own, err := os.Readlink("/proc/self/ns/mnt")
	theirs, errTheirs := os.Readlink(p.file("ns/mnt"))
	root, errRoot := os.Readlink(p.file("root"))
	if errors.Join(err, errTheirs, errRoot) != nil || own == theirs && root == "/" {
		return path
	}
	return filepath.Join(p.file("root"), path)
}
