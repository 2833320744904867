// Package running reads with what a running weftd was started, also of one that does not answer.
package running

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// Settings returns those with which weftd was started. They are as complete as they could be read also with
// an error.
func (p Process) Settings() (options.Config, error) {
	if len(p.Args) == 0 {
		return options.Parse(nil, nil)
	}
	return options.Parse(p.Args[1:], p.Environ)
}

// Path returns where this process finds the file that weftd calls path: weftd may run in a container, and
// path may be relative to its directory.
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
	return within(p.file("root"), path)
}

// within follows the symbolic links of path in root, where an absolute one begins at root. The kernel would
// have it begin at the caller's own root: /var/run, which most images have as a link to /run, would be the
// host's.
func within(root, path string) string {
	done, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		if name == ".." {
			done = filepath.Dir(done)
			continue
		}
		next := filepath.Join(done, name)
		to, err := os.Readlink(filepath.Join(root, next))
		if err != nil || name == "" || links == 40 { // no link, or the kernel's limit
			done = next
			continue
		}
		links++
		if filepath.IsAbs(to) {
			done = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	return filepath.Join(root, done)
}

// Find returns the process of a weftd that answers, 0 if it is not known from here. listener is the process
// that made its control socket, which an earlier weftd may have done. reported is the pid that it says it
// has, which is that of its own PID namespace.
func Find(listener, reported int) int {
	switch {
	case listener <= 0 || reported <= 0: // it is not visible, so that its pid means another process here
		return 0
	case slices.Equal(last(listener), []int{reported}):
		return listener
	case slices.Equal(namespaced(reported), []int{reported}) && named(reported):
		return reported
	}
	return 0
}

// named reports whether the program of pid is called weftd.
func named(pid int) bool {
	b, err := os.ReadFile(Process{PID: pid}.file("comm"))
	return err == nil && strings.TrimSpace(string(b)) == "weftd"
}

// namespaced returns the pids of a process, from this PID namespace to its own; nil if there is no such
// process.
func namespaced(pid int) (out []int) {
	b, err := os.ReadFile(Process{PID: pid}.file("status"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, "NSpid:"); ok {
			for word := range strings.FieldsSeq(text) {
				n, _ := strconv.Atoi(word) // the kernel writes numbers
				out = append(out, n)
			}
		}
	}
	return out
}

// last returns the pid of a process in its own PID namespace.
func last(pid int) []int {
	all := namespaced(pid)
	return all[max(0, len(all)-1):]
}
