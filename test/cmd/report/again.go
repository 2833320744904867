package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// again runs each failed test once more, by itself, if there are most of them at the most, and returns the exit status of
// all together: 0 only if every one of them passed now. A data race, a panic, a limit of time and what is no test have no second
// run: none of these is the machine's fault.
func (r *results) again(most, status int, command []string, stderr io.Writer) (int, error) {
	failed := r.repeatable()
	if len(failed) == 0 || len(failed) > most {
		return status, nil
	}
	for _, t := range failed {
		fmt.Fprintf(r.out, "\n== once more, by itself: %s %s\n", t.pkg, t.name)
		second, status, err := collect(alone(command, t), r.out, stderr)
		switch {
		case err != nil:
			return 0, err
		case status != 0 || second.failed():
			second.end(0)
			return max(status, 1), nil
		case !second.passed(t): // a second run that has not run it has shown nothing
			return 1, nil
		}
	}
	fmt.Fprintf(r.out, "\n== unsteady: %d, failed as said above, and passed by themselves. Find out why\n", len(failed))
	for _, t := range failed {
		fmt.Fprintf(r.out, "unsteady: %s %s\n", t.pkg, t.name)
	}
	return 0, nil
}

// noSecond is what a test says that gets no second run.
var noSecond = regexp.MustCompile(`(?m)^(WARNING: DATA RACE|panic: |fatal error: )|race detected during execution of test`)

// repeatable are the failed tests that are no subtests; none if something failed that is not to be repeated.
func (r *results) repeatable() (failed []*test) {
	if len(r.other) > 0 {
		return nil
	}
	for _, t := range r.order {
		if !t.failed {
			continue
		}
		if !t.ended || noSecond.MatchString(strings.Join(t.said, "")) || noSecond.MatchString(strings.Join(r.loose[t.pkg], "")) {
			return nil
		}
		if !strings.Contains(t.name, "/") {
			failed = append(failed, t)
		}
	}
	return failed
}

// passed reports whether a run had the test of that package and name, and it passed.
func (r *results) passed(t *test) bool {
	is := r.tests[[2]string{t.pkg, t.name}]
	return is != nil && is.ended && !is.failed && !is.skipped
}

// alone is a go test command with one test of its packages, which stand last.
func alone(command []string, t *test) []string {
	end := len(command)
	for end > 0 && (command[end-1] == "." || strings.HasPrefix(command[end-1], "./") || strings.HasPrefix(command[end-1], "weft/")) {
		end--
	}
	return slices.Concat(command[:end], []string{"-run", "^" + regexp.QuoteMeta(t.name) + "$", t.pkg}) // the last -run is the one that counts
}
