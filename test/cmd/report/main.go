// Command report runs "go test -json" and tells what came of it, for people who read the end of a log: a line for
// each package as it ends, all that a failed test printed, then the slowest tests, and last the failed tests'
// names and what they said. Its exit status is that of the command.
//
//	report [-times FILE] [-slowest N] [-again N] -- go test -json ./...
//
// The times of all tests are appended to FILE, a line each: seconds, package, test.
//
// With -again up to N failed tests get a second run, each by itself. Those that pass it are named as unsteady, with all that
// they said when they failed, and the status is then 0 (docs/decisions/0026).
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	status, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

// run returns the exit status of the command that args name.
func run(args []string, stdout, stderr io.Writer) (int, error) {
	f := flag.NewFlagSet("report", flag.ContinueOnError)
	f.SetOutput(stderr)
	times := f.String("times", "", "append the time of each test to this `file`")
	slowest := f.Int("slowest", 0, "print so many of the slowest tests")
	again := f.Int("again", 0, "run up to so many failed tests once more, each by itself")
	if err := f.Parse(args); err != nil {
		return 2, nil // f has said it
	}
	if f.NArg() == 0 {
		return 0, errors.New("no command: report -- go test -json ./... is how it is called")
	}
	r, status, err := collect(f.Args(), stdout, stderr)
	if err != nil {
		return 0, err
	}
	if *times != "" {
		if err := r.appendTimes(*times); err != nil {
			return 0, err
		}
	}
	r.end(*slowest)
	if status == 0 && r.failed() {
		return 0, errors.New("a test failed, and go test says that none did")
	}
	if status == 0 || *again == 0 {
		return status, nil
	}
	return r.again(*again, status, f.Args(), stderr)
}

// collect runs the command to its end and returns what its tests said, and its exit status.
func collect(command []string, stdout, stderr io.Writer) (*results, int, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, 0, err
	}
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	r := newResults(stdout)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		r.line(line)
		if err != nil {
			break // io.EOF, or the command's end will say
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return nil, 0, err
	}
	return r, cmd.ProcessState.ExitCode(), nil
}
