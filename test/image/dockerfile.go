package image

import (
	"errors"
	"fmt"
	"strings"
)

// Stage is one FROM of a Dockerfile and what follows it.
type Stage struct {
	// From is the base image: "scratch", or a name in which ARGs are not replaced.
	From string
	// Steps are in the order of the file.
	Steps []Step
}

// Step is one instruction, its name in upper case and its arguments in one line.
type Step struct{ Name, Args string }

// ErrDockerfile is wrapped by the error for a file with something that this package does not understand.
var ErrDockerfile = errors.New("not understood")

// Parse reads a Dockerfile and returns its stages by name, without comments and with continued lines
// joined. It is an error if a stage has no name.
func Parse(text string) (map[string]Stage, error) {
	stages := map[string]Stage{}
	current := ""
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, args, _ := strings.Cut(line, " ")
		name, args = strings.ToUpper(name), strings.TrimSpace(args)
		if name != "FROM" {
			if s, ok := stages[current]; ok {
				s.Steps = append(s.Steps, Step{name, args})
				stages[current] = s
			} else if name != "ARG" {
				return nil, fmt.Errorf("%w: %s before any FROM", ErrDockerfile, name)
			}
			continue
		}
		f := strings.Fields(args)
		if len(f) > 0 && strings.HasPrefix(f[0], "--platform=") {
			f = f[1:]
		}
		if len(f) != 3 || !strings.EqualFold(f[1], "as") {
			return nil, fmt.Errorf("%w: FROM %s: want FROM image AS name", ErrDockerfile, args)
		}
		current = f[2]
		stages[current] = Stage{From: f[0]}
	}
	return stages, nil
}

// copyStep says what COPY copies: src, from the context or from another stage, to dst.
type copyStep struct {
	from, dst string
	src       []string
}

func parseCopy(args string) (copyStep, error) {
	var c copyStep
	f := strings.Fields(args)
	for len(f) > 0 && strings.HasPrefix(f[0], "--") {
		stage, ok := strings.CutPrefix(f[0], "--from=")
		if !ok {
			return c, fmt.Errorf("%w: COPY %s", ErrDockerfile, f[0])
		}
		c.from, f = stage, f[1:]
	}
	if len(f) < 2 {
		return c, fmt.Errorf("%w: COPY %s: want sources and a destination", ErrDockerfile, args)
	}
	c.src, c.dst = f[:len(f)-1], f[len(f)-1]
	if !strings.HasSuffix(c.dst, "/") {
		return c, fmt.Errorf("%w: COPY to %s: write the folder, with a slash at its end", ErrDockerfile, c.dst)
	}
	return c, nil
}

// packages returns those that an apt-get line installs; ok is false for any other line.
func packages(run string) (names []string, ok bool) {
	for part := range strings.SplitSeq(run, "&&") {
		f := strings.Fields(part)
		if len(f) < 2 || f[0] != "apt-get" || f[1] != "install" {
			continue
		}
		for _, w := range f[2:] {
			if !strings.HasPrefix(w, "-") {
				names = append(names, w)
			}
		}
		return names, true
	}
	return nil, false
}

// Entrypoint returns the stage's entry point, if that is in the form ["a", "b"], or nil.
func (s Stage) Entrypoint() []string {
	for _, step := range s.Steps {
		if step.Name == "ENTRYPOINT" {
			return strings.FieldsFunc(step.Args, func(r rune) bool { return strings.ContainsRune(`[]", `, r) })
		}
	}
	return nil
}

// Env returns the stage's variables, as NAME=value.
func (s Stage) Env() []string {
	var env []string
	for _, step := range s.Steps {
		if step.Name == "ENV" {
			env = append(env, step.Args)
		}
	}
	return env
}
