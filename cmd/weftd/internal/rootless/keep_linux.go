package rootless

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/options"
	"weft/cmd/internal/statefiles"
	"weft/lease/atomicfile"
	"weft/routing/ownthread"
)

// hold starts the process that keeps the network namespace, which others enter by it, and notes it in the
// state directory: its id, and when it was started, by which it is known from another one of that id.
func hold(net int, stateDir string) (options.Place, error) {
	p := options.Place{Elsewhere: true, FD: net, User: true, Own: true}
	program, err := os.Executable()
	if err != nil {
		return p, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(program, "keeps-network-namespace")
	cmd.Dir, cmd.Env = "/", []string{options.Inside + "=" + wordKeep}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // ^C is weftd's
	alive, err := cmd.StdinPipe()                        // it is closed when this process ends, in whatever way
	if err != nil {
		return p, err
	}
	if err := ownthread.In(net, cmd.Start); err != nil {
		return p, fmt.Errorf("keep the network namespace: %w", err)
	}
	// whoever kills it has others go on without a way in
	go func() { _, _ = cmd.Process.Wait(); _ = alive.Close() }()
	p.PID = cmd.Process.Pid
	started, err := startOf(p.PID)
	if err == nil {
		note := filepath.Join(stateDir, statefiles.Namespace)
		err = atomicfile.Write(note, fmt.Appendf(nil, "%d %s\n", p.PID, started))
	}
	if err != nil {
		return p, fmt.Errorf("note the network namespace: %w", err)
	}
	return p, nil
}

// kept finds the network namespace that an earlier weftd made and that is still in use.
func kept(stateDir string) (target, bool) {
	b, err := os.ReadFile(filepath.Join(stateDir, statefiles.Namespace))
	words := strings.Fields(string(b))
	if err != nil || len(words) != 2 {
		return target{}, false
	}
	pid, err := strconv.Atoi(words[0])
	if err != nil || pid <= 0 {
		return target{}, false
	}
	if started, err := startOf(pid); err != nil || started != words[1] {
		return target{}, false
	}
	t, err := find(words[0])
	if err != nil {
		return target{}, false
	}
	if t.ours { // nobody made it for a user namespace of its own
		t.close()
		return target{}, false
	}
	return t, true
}

// startOf is when a process was started, in the kernel's ticks (proc_pid_stat(5)).
func startOf(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // its name has neither, being weftd's
	words := strings.Fields(rest)
	if len(words) < 20 {
		return "", errors.New("the kernel does not say when the process was started")
	}
	return words[19], nil
}

// keepEvery is the time between looks at who else is in a network namespace.
const keepEvery = 2 * time.Second

// keep is in the network namespace as long as weftd runs, whose end closes stdin, and after that as long as
// another process is in it, so that the next weftd finds that, and until the next weftd has started one that
// keeps it.
func keep(stdin io.Reader) error {
	_, _ = io.Copy(io.Discard, stdin) // however it ends, weftd has ended
	for {
		others, keepers, err := whoIsIn("/proc/self/ns/net")
		if err != nil || !others || slices.ContainsFunc(keepers, youngerThan(os.Getpid())) {
			return err
		}
		time.Sleep(keepEvery)
	}
}

// youngerThan returns what reports whether a process was started after that one. Of two that started in one
// tick the higher id counts as younger: of several, one is the youngest.
func youngerThan(pid int) func(int) bool {
	than, err := startOf(pid)
	return func(other int) bool {
		started, bad := startOf(other)
		if err != nil || bad != nil { // it has ended
			return false
		}
		return cmp.Or(cmp.Compare(len(started), len(than)), cmp.Compare(started, than), cmp.Compare(other, pid)) > 0
	}
}

// whoIsIn reports whether another process than this one is in the network namespace of that file and does not
// merely keep it, and which others keep it. Those that are somebody else's are not seen.
func whoIsIn(file string) (others bool, keepers []int, err error) {
	here, err := stat(file)
	if err != nil {
		return false, nil, err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false, nil, err
	}
	for _, dir := range dirs {
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) {
			continue
		}
		there, err := stat(filepath.Join(dir, "ns/net"))
		if err != nil || there.Dev != here.Dev || there.Ino != here.Ino {
			continue
		}
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		if !bytes.Contains(line, []byte("\x00keeps-network-namespace")) {
			others = true
		} else if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			keepers = append(keepers, pid)
		}
	}
	return others, keepers, nil
}

// Watch returns an error when the process that named the TUN's namespace is gone and no other is in it, and
// nil when ctx ends. A namespace of a path, which needs no process, and one of weftd's own are not watched.
func Watch(ctx context.Context, p options.Place) error {
	if !p.Elsewhere || p.Own || p.PID == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err == nil {
		ended := make(chan struct{})
		go func() { // it ends with this process, or the other one
			defer close(ended)
			for {
				if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); !errors.Is(err,
					unix.EINTR) {
					return
				}
			}
		}()
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	} else if !errors.Is(err, unix.ESRCH) {
		return nil // a kernel without pidfds: what ends is not noticed
	}
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if others, _, err := whoIsIn(fmt.Sprint("/proc/self/fd/", p.FD)); err == nil && !others {
			return fmt.Errorf("--tun-netns %d: the process is gone, and no other one is in its network namespace: "+
				"nobody is left to carry packets for; start weftd with the namespace that took its place", p.PID)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
