package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/safepath"
	"weft/cmd/weftd/internal/handover"
)

// upgrade is a successor that this process started.
type upgrade struct {
	pid     int
	outcome chan outcome // holds one
	minder  *os.File     // where the successor will say who took its place; nil if this process does not wait for it
}

// MinderPipe is the variable that names the descriptor by which a weftd tells what waits for it which process has taken its place.
const MinderPipe = "WEFT_MINDER"

// minderProcess is the variable that has the number of that process.
const minderProcess = "WEFT_MINDER_PID"

// Upgrade implements control.Upgrader.
func (d *Daemon) Upgrade(ctx context.Context, r control.UpgradeRequest) (done control.Upgraded, err error) {
	refuse := func(format string, a ...any) (control.Upgraded, error) {
		return done, fmt.Errorf("%w: %w", control.ErrRefused, fmt.Errorf(format, a...))
	}
	path := r.Binary
	if path == "" {
		path = d.binary
	}
	real, err := mayRun(path)
	if err != nil {
		return refuse("%w", err)
	}
	if d.cfg.Rootless.Place.Elsewhere {
		return refuse("a weftd whose TUN is in another network namespace cannot start its successor yet: install the program, and restart weftd")
	}
	if err := d.MayHandOver(control.HandOverRequest{Protocol: handover.Version, Version: d.version, State: d.state, Netns: ownNetns()}); err != nil {
		return done, err
	}
	version, err := versionOf(real)
	if err != nil {
		return refuse("%s is not started in weftd's place: %w", path, err)
	}
	began := time.Now()
	u := &upgrade{outcome: make(chan outcome, 1)}
	cmd := exec.Command(real, os.Args[1:]...)
	cmd.Args[0] = path // a link may lead elsewhere by the next time
	cmd.Env = successorEnvironment(os.Environ())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	told, err := u.mind(d.minder, d.followed())
	if err != nil {
		return done, err
	}
	if told != nil {
		cmd.ExtraFiles = []*os.File{told}
		cmd.Env = append(cmd.Env, MinderPipe+"=3", fmt.Sprintf("%s=%d", minderProcess, cmp.Or(d.minderPID, os.Getpid())))
	}
	defer u.unmind(told, d.minder, &err)
	d.mu.Lock()
	if d.upgrading != nil {
		d.mu.Unlock()
		return refuse("an upgrade is under way already")
	}
	d.upgrading = u
	err = cmd.Start()
	if err == nil {
		u.pid = cmd.Process.Pid
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.upgrading = nil
	}()
	if err != nil {
		return refuse("%s cannot be started: %w", path, err)
	}
	ended := make(chan struct{})
	go func() { // ends with the child, or with this process
		_ = cmd.Wait() // ProcessState says it
		close(ended)
	}()
	var o outcome
	select {
	case o = <-u.outcome:
	case <-ended:
		select {
		case o = <-u.outcome: // it was about to come
		case <-time.After(time.Second):
			o.err = fmt.Errorf("it ended before it asked for anything (%s): what it said is in weftd's log. If it is older than hand-over, or its settings are wrong, it has to be started the ordinary way: systemctl restart weftd", cmd.ProcessState)
		}
	case <-ctx.Done():
		o = d.endUpgrade(u, cmd.Process)
		if o.err != nil {
			o.err = fmt.Errorf("it took too long: %w", context.Cause(ctx))
		}
	}
	if o.err != nil {
		select {
		case <-ended:
		case <-time.After(killTime):
			_ = cmd.Process.Kill() // it may have ended just now
			<-ended
		}
		return refuse("%s (%s) has not taken over, and the weftd that runs (pid %d, %s) goes on: %w", path, version, os.Getpid(), d.version, o.err)
	}
	return control.Upgraded{
		Binary: path, FromVersion: d.version, ToVersion: o.report.Version, FromPID: os.Getpid(), PID: u.pid,
		Pause: o.pause.Microseconds(), Took: time.Since(began).Milliseconds(), Ports: o.report.Ports, Pods: o.report.Pods,
	}, nil
}

var errUnheard = errors.New("it has not asked for anything")

// endUpgrade ends a successor for which nobody waits any more. A hand-over to it that is under way ends first: whom it has made the one
// that serves goes on.
func (d *Daemon) endUpgrade(u *upgrade, p *os.Process) outcome {
	d.handing.Lock() // from now on it is given nothing
	defer d.handing.Unlock()
	select {
	case o := <-u.outcome:
		return o
	default:
		_ = p.Kill() // it may have ended just now
		return outcome{err: errUnheard}
	}
}

// successorEnvironment leaves out what the service manager said to this process alone.
func successorEnvironment(all []string) (out []string) {
	for _, v := range all {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", MinderPipe, minderProcess:
		default:
			out = append(out, v)
		}
	}
	return out
}

// versionTime bounds how long a program may take to say its version, and versionMost how much it may say, in bytes.
const (
	versionTime = 20 * time.Second
	versionMost = 4 << 10
)

// versionOf asks the program at path, which is not started in weftd's place unless it says that it is one: what another program does and prints
// with weftd's arguments nobody knows.
func versionOf(path string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), versionTime)
	defer cancel()
	out := &firstBytes{most: versionMost}
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Stdout, cmd.WaitDelay = out, time.Second // a child of its own may have the pipe
	err := cmd.Run()
	line, _, _ := strings.Cut(string(out.b), "\n")
	if version, ok := strings.CutPrefix(line, "weftd "); ok && err == nil {
		return strings.TrimSpace(version), nil
	}
	return "", errors.Join(fmt.Errorf("with --version it does not say that it is a weftd, but %.60q", line), err)
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

// mayRun returns the file that path leads to, or why it is not started with weftd's rights: others than root and weftd's own user can
// have put it there.
func mayRun(path string) (real string, err error) {
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("%q is no absolute path of a program: name one with --binary", path)
	}
	real, err = safepath.Check(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s is not there: install the new weftd at that path, or name another with --binary", path)
	}
	if err != nil {
		return "", fmt.Errorf("weftd starts only what nobody but root and its own user can replace: %w", err)
	}
	info, err := os.Stat(real)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is no program: it has to be a file that may be executed (chmod 755)", path)
	}
	return real, err
}

// followed reports whether a service manager follows the process that MAINPID names. One outside of the container of which this process is,
// or was begun by, the first does not: it knows other numbers, and the container ends with its first process.
func (d *Daemon) followed() bool {
	return os.Getenv("NOTIFY_SOCKET") != "" && os.Getpid() != 1 && d.minder == nil
}

// mind returns what the successor is to write to. Where the service manager follows the process that MAINPID names, nobody waits for
// this one. Elsewhere whoever started weftd does: as a container's runtime, another service manager or a shell. Then this process
// becomes one that only waits, or there is such a one already, which minder leads to.
func (u *upgrade) mind(minder *os.File, followed bool) (told *os.File, err error) {
	if minder != nil || followed {
		return minder, nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("wait for the successors of a successor: %w", err)
	}
	u.minder, told, err = os.Pipe()
	return told, err
}

// unmind closes what is not needed when the upgrade has ended with err.
func (u *upgrade) unmind(told, minder *os.File, err *error) {
	if told != nil && told != minder {
		_ = told.Close() // the successor has its own
	}
	if *err != nil && u.minder != nil {
		_ = u.minder.Close()                                    // nobody writes to it
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) // it could be set, so it can be taken back
	}
}

// tellMinder tells the process that waits for this one which took its place.
func (d *Daemon) tellMinder(pid int) {
	if d.minder != nil {
		_, _ = fmt.Fprintln(d.minder, pid) // if it is gone, nobody waits
	}
}

// openMinder takes up the descriptor that MinderPipe names, and the number of the process at its other end, 0 if it is not known; nil if nobody
// waits for this process that way.
func openMinder() (pipe *os.File, pid int) {
	fd, err := strconv.Atoi(os.Getenv(MinderPipe))
	if n, err := strconv.Atoi(os.Getenv(minderProcess)); err == nil {
		pid = n
	}
	_, _ = os.Unsetenv(MinderPipe), os.Unsetenv(minderProcess) // what this process starts is not waited for
	if err != nil || fd < 3 {
		return nil, 0
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return nil, 0
	}
	return os.NewFile(uintptr(fd), "minder"), pid
}
