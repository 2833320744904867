package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const ok = `{"Action":"run","Package":"m/a","Test":"TestA"}
{"Action":"output","Package":"m/a","Test":"TestA","Output":"    a_test.go:1: not shown\n"}
{"Action":"attr","Package":"m/a","Test":"TestA","Key":"waited","Value":"3.5s"}
{"Action":"attr","Package":"m/a","Test":"TestA","Key":"waited in vain","Value":"3.5s"}
{"Action":"pass","Package":"m/a","Test":"TestA","Elapsed":5.5}
{"Action":"run","Package":"m/a","Test":"TestB"}
{"Action":"run","Package":"m/a","Test":"TestB/sub"}
{"Action":"run","Package":"m/a","Test":"TestB/another"}
{"Action":"pass","Package":"m/a","Test":"TestB/sub","Elapsed":1}
{"Action":"pass","Package":"m/a","Test":"TestB/another","Elapsed":2}
{"Action":"pass","Package":"m/a","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t5s\n"}
{"Action":"pass","Package":"m/a","Elapsed":5}
`

// reported runs a shell command that prints events.
func reported(t *testing.T, events, then string, flags ...string) (out string, status int, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events")
	if err := os.WriteFile(file, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	status, err = run(append(flags, "--", "sh", "-c", "cat "+file+"; "+then), &stdout, &stderr)
	return stdout.String() + stderr.String(), status, err
}

func TestAllIsWell(t *testing.T) {
	times := filepath.Join(t.TempDir(), "times")
	want := "ok  \tm/a\t5s\n    3.00 m/a TestB\n"
	if out, status, err := reported(t, ok, "true", "-slowest", "1", "-times", times); out != want || status != 0 || err != nil {
		t.Errorf("%q, status %d, %v; want %q", out, status, err, want)
	}
	if got, err := os.ReadFile(times); string(got) != "    3.00 m/a TestB\n    2.00 m/a TestA\n" {
		t.Errorf("times: %q, %v", got, err)
	}
}

// The status is the command's; a failure that the status does not show is an error.
func TestTheStatusIsTheCommands(t *testing.T) {
	if _, status, err := reported(t, ok, "exit 3"); status != 3 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	bad := `{"Action":"fail","Package":"m/a","Test":"TestA"}` + "\n"
	if _, _, err := reported(t, bad, "true"); err == nil {
		t.Error("no error for a failed test with status 0")
	}
	if _, _, err := reported(t, `{"Action":"run","Package":"m/a","Test":"TestA"}`+"\nnot JSON\n", "true"); err != nil {
		t.Error(err)
	}
}

// What failed stands last, each with its own words, whether it is a test, a build or a process.
func TestFailuresStandLast(t *testing.T) {
	events, err := os.ReadFile("testdata/failures.json")
	if err != nil {
		t.Fatal(err)
	}
	out, status, err := reported(t, string(events), "exit 1", "-slowest", "10")
	if status != 1 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	before, last, _ := strings.Cut(out, "== failed, in short\n")
	if !strings.Contains(before, "        6\n") || strings.Contains(out, "not shown") {
		t.Errorf("all that failed tests said, and nothing of the others:\n%s", before)
	}
	want := `FAIL: a build, or a package beside its tests
# m/c [m/c.test]
c/c_test.go:3:31: undefined: x
FAIL	m/c [build failed]
no main
FAIL	m/d	0.024s
FAIL: m/a TestBad/sub (0.0 s)
    a_test.go:6: n
        1
        2
    a_test.go:6: got 1, want 2
FAIL: m/b TestPanics (0.0 s)
    b_test.go:3: before
panic: runtime error: invalid memory address or nil pointer dereference [recovered, repanicked]
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x52e41c]

FAIL: m/e TestHangs (0.0 s)
panic: test timed out after 1s
== failed: 4
FAIL: a build, or a package beside its tests
FAIL: m/a TestBad/sub (0.0 s)
FAIL: m/b TestPanics (0.0 s)
FAIL: m/e TestHangs (0.0 s)
`
	if last != want {
		t.Errorf("the end is\n%s\nwant\n%s", last, want)
	}
}

// However much failed, its names and first words fit into a hundred lines.
func TestTheEndFitsIntoAHundredLines(t *testing.T) {
	var b strings.Builder
	for i := range 300 {
		for range 50 {
			fmt.Fprintf(&b, `{"Action":"output","Package":"m/a","Test":"Test%d","Output":"    a_test.go:1: line\n"}`+"\n", i)
		}
		fmt.Fprintf(&b, `{"Action":"fail","Package":"m/a","Test":"Test%d"}`+"\n", i)
	}
	b.WriteString(`{"Action":"fail","Package":"m/a"}` + "\n")
	out, _, _ := reported(t, b.String(), "exit 1")
	_, last, _ := strings.Cut(out, "== failed, in short\n")
	if n := strings.Count(last, "\n"); n > 100 || !strings.Contains(last, "failed: 300") {
		t.Errorf("%d lines:\n%s", n, last)
	}
}

// unsteady is a go test whose TestB fails with all tests, and by itself says what file has. TestA and TestB are those of ok.
func unsteady(t *testing.T, first, second string, again string) (out string, status int, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"first": first, "second": second, "go": `#!/bin/sh
echo "$@" >>` + dir + `/called
case "$*" in
*"-run ^TestB\$ m/a"*) cat ` + dir + `/second; grep -q '"fail"' ` + dir + `/second && exit 1; exit 0;;
*) cat ` + dir + `/first; exit 1;;
esac
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	status, err = run([]string{"-again", again, "--", filepath.Join(dir, "go"), "test", "-json", "-run", "TestA|TestB", "-timeout", "3m", "./x", "weft/a"}, &stdout, &stderr)
	called, _ := os.ReadFile(filepath.Join(dir, "called"))
	return string(called) + stdout.String() + stderr.String(), status, err
}

// A test that fails beside the others and passes by itself is named and said whole, and fails nothing. Whatever speaks against
// the machine as the cause leaves the status as it was.
func TestOnceMore(t *testing.T) {
	event := func(action, test, output string) string {
		return fmt.Sprintf(`{"Action":%q,"Package":"m/a","Test":%q,"Output":%q}`, action, test, output) + "\n"
	}
	pkg := func(action string) string { return fmt.Sprintf(`{"Action":%q,"Package":"m/a"}`, action) + "\n" }
	fails := func(test, said string) string {
		return event("run", test, "") + event("output", test, "    b_test.go:1: "+said+"\n") + event("fail", test, "")
	}
	passes := event("run", "TestB", "") + event("pass", "TestB", "") + pkg("pass")
	lone := fails("TestB/sub", "too late") + event("run", "TestB", "") + event("fail", "TestB", "") + pkg("fail")
	for _, c := range []struct {
		name, first, second, again string
		status                     int
		calls                      int
		want                       string
	}{
		{"unsteady", lone, passes, "2", 0, 2, "unsteady: m/a TestB\n"},
		{"fails again", lone, lone, "2", 1, 2, "once more, by itself: m/a TestB\n"},
		{"not asked for", lone, passes, "0", 1, 1, "too late"},
		{"too many", fails("TestA", "x") + fails("TestB", "y") + pkg("fail"), passes, "1", 1, 1, "failed: 2"},
		{"a race", fails("TestB", "x") + event("output", "TestC", "WARNING: DATA RACE\n") + event("fail", "TestC", "") + pkg("fail"), passes, "2", 1, 1, "DATA RACE"},
		{"a panic", event("run", "TestB", "") + event("output", "TestB", "panic: x\n") + event("fail", "TestB", "") + pkg("fail"), passes, "2", 1, 1, "panic: x"},
		{"not ended", event("run", "TestB", "") + pkg("fail"), passes, "2", 1, 1, "TestB"},
		{"the package", lone + `{"Action":"output","Package":"m/b","Output":"no main\n"}` + "\n" + `{"Action":"fail","Package":"m/b"}` + "\n", passes, "2", 1, 1, "no main"},
		{"not run", lone, pkg("pass"), "2", 1, 2, "once more"},
		{"skipped", lone, event("run", "TestB", "") + event("skip", "TestB", "") + pkg("pass"), "2", 1, 2, "once more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status, err := unsteady(t, c.first, c.second, c.again)
			if status != c.status || err != nil || !strings.Contains(out, c.want) || strings.Count(out, "test -json") != c.calls {
				t.Errorf("status %d, %v, want %d and %d runs; want %q in\n%s", status, err, c.status, c.calls, c.want, out)
			}
			if c.calls == 2 && !strings.Contains(out, "test -json -run TestA|TestB -timeout 3m -run ^TestB$ m/a\n") {
				t.Errorf("the second run:\n%s", out)
			}
			if !strings.Contains(out, "b_test.go:1: ") && c.name != "a panic" && c.name != "not ended" {
				t.Errorf("what failed first is not said:\n%s", out)
			}
		})
	}
}
