package reexec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb is the argument by which a program says which format of the index it reads.
const Verb = "upgrade-format"

const (
	// askTime bounds how long a program may take to answer one question, and answerMost how many bytes it may say.
	askTime    = 10 * time.Second
	answerMost = 64 << 10
)

// Ask returns the version of the program at path, or why it is not to be executed in weftd's place: it has to say that
// it is a weftd, that it reads the index, and that it finds no fault with its arguments.
func Ask(ctx context.Context, p Program) (version string, err error) {
	path, args, env := p.Path, p.Args, append(environment(os.Environ()), p.Env...)
	out, err := ask(ctx, path, env, "--version")
	line, _, _ := strings.Cut(out, "\n")
	version, ok := strings.CutPrefix(line, "weftd ")
	if err != nil || !ok {
		return "", errors.Join(fmt.Errorf("with --version it does not say that it is a weftd, but %.60q", line), err)
	}
	version = strings.TrimSpace(version)
	out, err = ask(ctx, path, env, Verb)
	if format, bad := strconv.Atoi(strings.TrimSpace(out)); err != nil || bad != nil || format != Format {
		return version, fmt.Errorf("it cannot go on in the place of this weftd, being of another format of what is left to it: restart weftd (systemctl restart weftd)")
	}
	if out, err = ask(ctx, path, env, append(slices.Clone(args), "--check", "--offline")...); err != nil {
		return version, fmt.Errorf("with --check --offline it finds a fault: %s: %w", faults(out), err)
	}
	return version, nil
}

// faults is the last part of a check's report, which names them.
func faults(report string) string {
	if _, found, ok := strings.Cut(report, "\nFAULTS\n"); ok {
		return strings.Join(strings.Fields(found), " ")
	}
	return fmt.Sprintf("%.200q", strings.TrimSpace(report))
}

func ask(ctx context.Context, path string, env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("it did not answer within %v", askTime))
	defer cancel()
	out := &firstBytes{most: answerMost}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env, cmd.Stdout, cmd.WaitDelay = env, out, time.Second // a child of its own may have the pipe
	err := cmd.Run()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return string(out.b), err
}

// firstBytes keeps the first bytes that are written to it, and refuses more.
type firstBytes struct {
	b    []byte
	most int
}

func (f *firstBytes) Write(b []byte) (int, error) {
	if len(f.b)+len(b) > f.most {
		return 0, errors.New("it says too much")
	}
	f.b = append(f.b, b...)
	return len(b), nil
}
