package reexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Verb is the argument by which a program says which format of the index it reads, and whether it takes the
// settings that follow.
const Verb = "upgrade-format"

const (
	// askTime bounds how long a program may take to answer one question, and answerMost how many bytes it may
	// say.
	askTime    = 10 * time.Second
	answerMost = 64 << 10
)

// Ask returns the version of the program at path, or why it is not to be executed in weftd's place: it has to
// say that it is a weftd, that it reads the index, and that it reads its arguments and environment. Faults of
// the host are none of the program's: the one that runs has them, too.
func Ask(ctx context.Context, p Program) (version string, err error) {
	env := append(environment(os.Environ()), p.Env...)
	out, err := ask(ctx, p.Path, env, "--version")
	line, _, _ := strings.Cut(out, "\n")
	version, ok := strings.CutPrefix(line, "weftd ")
	if err != nil || !ok {
		return "", errors.Join(fmt.Errorf("with --version it does not say that it is a weftd, but %.60q", line),
			err)
	}
	version = strings.TrimSpace(version)
	out, err = ask(ctx, p.Path, env, append([]string{Verb}, p.Args...)...)
	line, fault, _ := strings.Cut(out, "\n")
	format, bad := strconv.Atoi(line)
	switch {
	case bad != nil || format != Format:
		return version, errors.Join(errors.New("it does not read what this weftd would leave to it: restart "+
			"weftd (systemctl restart weftd)"), err)
	case err != nil || fault != "":
		return version, errors.Join(fmt.Errorf("it does not take weftd's settings: %s", strings.TrimSpace(fault)),
			err)
	}
	return version, nil
}

// Answer writes what Ask wants to hear. fault says what is wrong with the settings.
func Answer(w io.Writer, fault error) error {
	if fault == nil {
		_, err := fmt.Fprintln(w, Format)
		return err
	}
	_, err := fmt.Fprintf(w, "%d\n%v\n", Format, fault)
	return err
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
