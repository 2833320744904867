package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json: "go doc test2json", and for builds "go help buildjson".
type event struct {
	Action     string
	Package    string
	ImportPath string // of a build's events
	Test       string
	Output     string
	Elapsed    float64 // seconds
	Key, Value string  // of an attribute
}

// test is one test or subtest.
type test struct {
	pkg, name string
	seconds   float64 // without those that it waited for its turn
	waited    float64
	said      []string // lines
	ended     bool
	failed    bool
	skipped   bool
}

// results collects what go test says and prints it while it comes.
type results struct {
	out   io.Writer
	tests map[[2]string]*test // by package and name
	order []*test             // as they began
	other []string            // what failed that is no test: builds, and packages beside their tests
	loose map[string][]string // by package, what it or its build printed outside of a test
}

func newResults(out io.Writer) *results {
	return &results{out: out, tests: map[[2]string]*test{}, loose: map[string][]string{}}
}

// line takes a line of the output. What is no event is printed as it is.
func (r *results) line(b []byte) {
	var e event
	if err := json.Unmarshal(b, &e); err != nil || e.Action == "" {
		_, _ = r.out.Write(b)
		return
	}
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
		r.loose[e.ImportPath] = append(r.loose[e.ImportPath], e.Output)
	case e.Action == "build-fail":
		r.other = append(r.other, r.loose[e.ImportPath]...)
	case e.Test == "":
		r.ofPackage(e)
	default:
		r.ofTest(e)
	}
}

func (r *results) ofTest(e event) {
	key := [2]string{e.Package, e.Test}
	t := r.tests[key]
	if t == nil {
		t = &test{pkg: e.Package, name: e.Test}
		r.tests[key] = t
		r.order = append(r.order, t)
	}
	switch e.Action {
	case "output":
		if !strings.HasPrefix(e.Output, "=== ") {
			t.said = append(t.said, e.Output)
		}
	case "attr":
		if d, err := time.ParseDuration(e.Value); err == nil && e.Key == "waited" {
			t.waited = d.Seconds()
		}
	case "pass", "skip":
		t.ended, t.skipped, t.seconds, t.said = true, e.Action == "skip", e.Elapsed-t.waited, nil
	case "fail":
		t.ended, t.failed, t.seconds = true, true, e.Elapsed-t.waited
	}
}

func (r *results) ofPackage(e event) {
	switch e.Action {
	case "output":
		if e.Output == "PASS\n" || e.Output == "FAIL\n" {
			return
		}
		r.loose[e.Package] = append(r.loose[e.Package], e.Output)
		fmt.Fprint(r.out, e.Output)
	case "fail":
		some := false
		for _, t := range r.order {
			if t.pkg != e.Package {
				continue
			}
			t.failed = t.failed || !t.ended // the process died in the middle of it
			if t.failed {
				some = true
				fmt.Fprintf(r.out, "\n=== %s %s\n%s", t.pkg, t.name, strings.Join(t.said, ""))
			}
		}
		if !some {
			r.other = append(r.other, r.loose[e.Package]...)
		}
	}
}

func (r *results) failed() bool {
	return len(r.other) > 0 || slices.ContainsFunc(r.order, func(t *test) bool { return t.failed })
}

// top are the tests that are no subtests, the slowest first. The time of a test is at least that of its subtests
// together: for go test what runs in parallel takes no time of the test that it belongs to.
func (r *results) top() []*test {
	var ts []*test
	of := map[[2]string]float64{} // by package and name of a test, its subtests' time
	for _, t := range slices.Backward(r.order) {
		if !t.ended {
			continue
		}
		name := [2]string{t.pkg, t.name}
		t.seconds = max(t.seconds, of[name])
		if i := strings.LastIndex(t.name, "/"); i >= 0 {
			of[[2]string{t.pkg, t.name[:i]}] += t.seconds
		} else {
			ts = append(ts, t)
		}
	}
	slices.SortStableFunc(ts, func(a, b *test) int { return cmp.Compare(b.seconds, a.seconds) })
	return ts
}

func (t *test) String() string { return fmt.Sprintf("%8.2f %s %s", t.seconds, t.pkg, t.name) }

func (r *results) appendTimes(file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for _, t := range r.top() {
		if _, err = fmt.Fprintln(f, t); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close())
}

// What end says of all failures together: the last hundred lines of a log are what is often all there is to read.
const (
	mostLines   = 80
	mostOfATest = 24
)

// end prints the slowest tests, and last what failed.
func (r *results) end(slowest int) {
	for _, t := range r.top()[:min(slowest, len(r.top()))] {
		fmt.Fprintln(r.out, t)
	}
	if !r.failed() {
		return
	}
	var names, said []string
	room := mostLines
	say := func(head string, lines []string) {
		names = append(names, head)
		if room <= 0 {
			return
		}
		lines = excerpt(lines, min(mostOfATest, room))
		room -= len(lines) + 1
		said = append(append(said, head+"\n"), lines...)
	}
	if len(r.other) > 0 {
		say("FAIL: a build, or a package beside its tests", r.other)
	}
	for _, t := range r.order {
		if t.failed && !r.failedWithin(t) {
			say(fmt.Sprintf("FAIL: %s %s (%.1f s)", t.pkg, t.name, t.seconds), t.said)
		}
	}
	fmt.Fprintf(r.out, "\n== failed, in short\n%s", strings.Join(said, ""))
	if room <= 0 || len(names) > 1 {
		fmt.Fprintf(r.out, "== failed: %d\n%s\n", len(names), strings.Join(names[:min(len(names), 15)], "\n"))
	}
}

// failedWithin reports whether a test's failure is one of its subtests', and it said nothing itself.
func (r *results) failedWithin(t *test) bool {
	return len(excerpt(t.said, 1)) == 0 && slices.ContainsFunc(r.order, func(sub *test) bool {
		return sub.failed && sub.pkg == t.pkg && strings.HasPrefix(sub.name, t.name+"/")
	})
}

// excerpt shortens what a test printed. Of a message of many lines, as the end of a daemon's log, the first three
// stay; of many messages the first and the last ones.
func excerpt(lines []string, most int) []string {
	var kept []string
	deep := 0
	for _, l := range lines {
		if strings.HasPrefix(strings.TrimSpace(l), "--- ") {
			continue // the line of the test itself, which the name says already
		}
		if deep++; !strings.HasPrefix(l, "        ") {
			deep = 0
		}
		if deep < 3 {
			kept = append(kept, l)
		}
	}
	if len(kept) > most {
		first := most / 3
		kept = append(append(kept[:first:first], "    […]\n"), kept[len(kept)-(most-first-1):]...)
	}
	return kept
}
