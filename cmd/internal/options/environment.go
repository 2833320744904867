package options

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Reader reads the settings: at the start, and again whenever a reload asks for it. The command line and the
// environment of a process cannot change, but the file of --environment-file can. It is for one goroutine at
// a time.
type Reader struct {
	args, environ []string
	// first is what the file had at the start, by name. A service manager that reads the same file has put it
	// into environ too.
	first map[string]string
}

// NewReader returns a Reader of args and environ as Parse takes them.
func NewReader(args, environ []string) *Reader {
	return &Reader{args: slices.Clone(args), environ: slices.Clone(environ)}
}

// Read is Parse, with what the file of --environment-file says in place of the environment's. more are
// further variables, which the file does not replace. A variable that the file had at the first Read, and has
// no more, counts as unset, although systemd, which reads the file too, put it into the environment.
func (r *Reader) Read(more ...string) (Config, error) {
	c, err := Parse(r.args, append(slices.Clone(r.environ), more...))
	if c.EnvironmentFile == "" || errors.Is(err, ErrHelp) {
		return c, err
	}
	now, faults := readEnvironment(c.EnvironmentFile)
	if r.first == nil {
		r.first = now
	}
	env := slices.DeleteFunc(slices.Clone(r.environ), func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		was, had := r.first[name]
		return had && was == value
	})
	for name, value := range now {
		env = append(env, name+"="+value)
	}
	c, err = Parse(r.args, append(env, more...))
	if faults == nil {
		return c, err
	}
	if err != nil {
		return c, fmt.Errorf("%w\n%w", faults, err)
	}
	return c, fmt.Errorf("%w\n%w", faults, ErrUsage)
}

// readEnvironment returns the variables of a file, by name. A file that is not there is an empty one.
func readEnvironment(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	if err == nil {
		var lines []string
		lines, err = Variables(string(b))
		if err != nil {
			err = fmt.Errorf("--environment-file %s: %w", path, err)
		}
		return environment(lines), err
	}
	return map[string]string{}, fmt.Errorf("--environment-file: %w", err)
}

// Variables reads lines NAME=value as systemd's EnvironmentFile has them, and returns them without the
// quotation marks around values. Empty lines and those that begin with # or ; say nothing. Of names twice the
// last counts. The error names the lines that are no variables, without their text, since they may hold a
// password.
func Variables(text string) ([]string, error) {
	var out []string
	var faults []error
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name = strings.TrimSpace(name); !ok || name == "" || strings.ContainsAny(name, " \t\"'") {
			faults = append(faults, fmt.Errorf("line %d is not NAME=value", n))
			continue
		}
		value = strings.TrimSpace(value)
		if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		out = append(out, name+"="+value)
	}
	return out, errors.Join(faults...)
}
