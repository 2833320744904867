package confine

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
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
)

// asTry is a variable that makes the test binary give up rights, in a process of its own.
const asTry = "WEFT_TEST_GIVE_UP_RIGHTS"

func TestMain(m *testing.M) {
	if os.Getenv(asTry) != "" {
		giveUp()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// outcome is what the process prints.
type outcome struct {
	Threads  []string          // what each says of its capabilities
	Child    string            // and a program that is started
	Written  map[string]string // why each file could not be written; "" where it could
	Enter    string            // the error of Enter
	Confined string            // what a weftd that is started is told
	Attempts map[string]string // why each attempt at more than weftd needs failed; "" where it did not
}

// giveUp gives up rights as weftd does, and prints what is left of them.
func giveUp() {
	if os.Args[1] == "pass" {
		panic(passes())
	}
	for range 4 { // threads that are there before
		go func() { runtime.LockOSThread(); select {} }()
	}
	runtime.Gosched()
	s := outcome{Written: map[string]string{}}
	cfg := options.Config{Confine: os.Args[1], CacheDir: os.Args[2],
		SubnetFile: filepath.Join(os.Args[2], "subnet.env")}
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
	if err := Enter(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
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
	if err := errors.Join(unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)); err != nil {
		return err
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
		return errno
	}
	if _, err := Pass(); err != nil {
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

// attempts are at what a weftd in an attacker's hand would do next. Each is harmless where it succeeds: the
// memory that is opened is that of this process's parent, and what is made in dir is removed.
func attempts(dir string) map[string]string {
	said := map[string]string{}
	try := func(what string, err error) {
		if said[what] = ""; err != nil {
			said[what] = err.Error()
		}
	}
	opens := func(name string, flags int) error {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	}
	_, missing := os.Stat(dir)
	if missing != nil {
		dir = os.TempDir()
	}
	err := unix.Mount("none", dir, "tmpfs", 0, "")
	if err == nil {
		_ = unix.Unmount(dir, 0)
	}
	try("mount", err)
	device := filepath.Join(dir, "device")
	if err = unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err == nil {
		_ = os.Remove(device)
	}
	try("make a device", err)
	try("change the root", unix.Chroot("/"))
	try("write to the memory of a process with more rights",
		opens(fmt.Sprintf("/proc/%d/mem", os.Getppid()), unix.O_RDWR))
	own, err := unix.Open("/proc/self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(own, unix.CLONE_NEWUTS) // its own: nothing changes
		_ = unix.Close(own)
	}
	try("enter a namespace", err)
	try("become another user", becomes(65534))
	try("say what the kernel runs for a crash", opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY))
	// Whoever may make a user namespace has all capabilities in it.
	try("mount in a user namespace of its own", starts(&syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}, "/bin/mount", "-t", "tmpfs", "none", dir))
	return said
}

// errFailed says that a program was started, and did not do what it was to.
var errFailed = errors.New("it failed")

// becomes makes one thread, which ends then, another user's.
func becomes(user uintptr) error {
	said := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); errno != 0 {
			said <- errno
			return
		}
		said <- nil
	}()
	return <-said
}

// starts starts a program, without opening anything for it, and waits for its end.
func starts(how *syscall.SysProcAttr, program ...string) error {
	pid, err := syscall.ForkExec(program[0], program, &syscall.ProcAttr{Sys: how, Files: []uintptr{2, 2, 2}})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		return fmt.Errorf("%s: %#x: %w", program[0], uint32(status), errors.Join(err, errFailed))
	}
	return nil
}
