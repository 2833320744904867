// Command try gives up rights as weftd does, in a process of its own, and prints what is left of them.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/confine"
)

// seen is what is printed.
type seen struct {
	Threads  []string          // what each says of its capabilities
	Child    string            // and a program that is started
	Written  map[string]string // why each file could not be written; "" where it could
	Enter    string            // the error of Enter
	Confined string            // what a weftd that is started is told
	Attempts map[string]string // why each attempt at more than weftd needs failed; "" where it did not
}

func main() {
	if len(os.Args) < 3 {
		panic("usage: try WORD DIRECTORY FILE…")
	}
	if os.Args[1] == "pass" {
		panic(passes())
	}
	for range 4 { // threads that are there before
		go func() { runtime.LockOSThread(); select {} }()
	}
	runtime.Gosched()
	s := seen{Written: map[string]string{}}
	cfg := options.Config{Confine: os.Args[1], CacheDir: os.Args[2], SubnetFile: filepath.Join(os.Args[2], "subnet.env")}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) < 4 {
		panic(fmt.Sprint(tasks, err))
	}
	var open []*os.File // since nothing may be opened later
	for _, t := range tasks {
		f, err := os.Open(t)
		if err != nil {
			panic(err)
		}
		open = append(open, f)
	}
	if err := confine.Enter(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
		s.Enter = err.Error()
	}
	for _, f := range open {
		text, err := io.ReadAll(f)
		s.Threads = append(s.Threads, rights(string(text), err))
	}
	text, err := exec.Command("cat", "/proc/self/status").Output()
	s.Child = rights(string(text), err)
	for _, f := range os.Args[3:] {
		s.Written[f] = ""
		if err := os.WriteFile(f, []byte("0"), 0o600); err != nil {
			s.Written[f] = errors.Unwrap(err).Error()
		}
	}
	s.Confined = os.Getenv("WEFT_CONFINED")
	s.Attempts = attempts(os.Args[2])
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		panic(err)
	}
}

// passes has another user's program take this one's place, as an upgrade does, which prints what it may do.
func passes() error {
	runtime.LockOSThread()
	if err := errors.Join(unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0), unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
		return errno
	}
	if _, err := confine.Pass(); err != nil {
		return err
	}
	return unix.Exec("/bin/cat", []string{"cat", "/proc/self/status"}, nil)
}

// rights are the lines of a process's status that say what it may do.
func rights(status string, err error) string {
	if err != nil {
		return err.Error()
	}
	var l []string
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "CapPrm", "CapEff", "CapBnd", "NoNewPrivs":
			l = append(l, name+" "+strings.TrimLeft(strings.TrimSpace(value), "0"))
		}
	}
	return strings.Join(l, ", ")
}
