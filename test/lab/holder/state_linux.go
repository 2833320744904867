package holder

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab/netns"
)

// ErrLeft is returned for a lab of which processes could not be ended.
var ErrLeft = errors.New("could not end")

// ErrNoLab is returned for a name that no lab has.
var ErrNoLab = errors.New("there is no such lab")

var (
	errHeld  = errors.New("is up already") // a living process has the lock
	errNotUp = errors.New("it is not up yet, or about to end")
)

const (
	// stateEnv names the folder of all labs to an isolated process, which does not see who its user is.
	stateEnv = "WEFT_LAB_STATE"
	// dirEnv names the lab's directory to each command on its hosts, by which Down knows what a killed holder
	// left.
	dirEnv    = "WEFT_LAB_DIR"
	lockFile  = "lock"
	stateFile = "lab.json"
	downFile  = "down" // says that Down asked for the end
	leftFile  = "left" // names the processes that the holder could not end, for the one who asked for the end
)

// stateRoot is the folder of this user's labs.
func stateRoot() (string, error) {
	if dir := os.Getenv(stateEnv); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return "/run/weft/lab", nil
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "weft-lab"), nil
	}
	// It is refused if somebody else owns a folder with this name, since they could read and end the user's
	// labs.
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weft-lab-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Mode&0o077 != 0 {
		return "", fmt.Errorf("%s is not a private directory of this user: remove it, or set XDG_RUNTIME_DIR", dir)
	}
	return dir, nil
}

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,31}$`)

func stateDir(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", fmt.Errorf("lab name %q: want 1 to 32 letters, digits, dots, dashes, underscores, the first "+
			"of them a letter or digit", name)
	}
	root, err := stateRoot()
	return filepath.Join(root, name), err
}

// lock takes the lock of a state directory that exists. The caller gives it up by closing the file. It is a
// POSIX record lock, of which the kernel says who has it. This process loses it as soon as it closes the file
// a second time.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, wholeFile()); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
				return nil, errHeld
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// If the directory was removed between the two calls, this file is in no directory, and its lock keeps
		// nobody out.
		mine, err := f.Stat()
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(mine, now) {
			return f, nil
		}
		_ = f.Close()
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
}

func wholeFile() *unix.Flock_t { return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart} }

// holderPID returns the id of the process that has the lock, as it is in this process's PID namespace, or
// ErrNoLab.
func holderPID(dir string) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, ErrNoLab
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	l := wholeFile()
	switch err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, l); {
	case err != nil:
		return 0, fmt.Errorf("ask who locked %s: %w", f.Name(), err)
	case l.Type == unix.F_UNLCK:
		return 0, ErrNoLab
	case l.Pid == 0:
		return 0, errors.New("a process holds it that this PID namespace does not show")
	}
	return int(l.Pid), nil
}

// claim is a state directory whose lock this process holds.
type claim struct {
	dir  string
	lock *os.File
}

// claimName takes the name and removes what a dead lab of that name left.
func claimName(name string) (*claim, error) {
	dir, err := stateDir(name)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := lock(dir)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w (weft lab down --lab %s)", name, err, name)
	}
	c := &claim{dir: dir, lock: f}
	if err := c.clear(lockFile, logFile); err != nil {
		_ = f.Close()
		return nil, err
	}
	return c, nil
}

// clear removes everything in the directory except the named files.
func (c *claim) clear(but ...string) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range entries {
		if !slices.Contains(but, e.Name()) {
			faults = append(faults, os.RemoveAll(filepath.Join(c.dir, e.Name())))
		}
	}
	return errors.Join(faults...)
}

// leave notes which processes outlive the lab, and returns an error that names them if there are any.
func (c *claim) leave(left []netns.Process) error {
	if len(left) == 0 {
		return nil
	}
	names := fmt.Sprint(left)
	return errors.Join(fmt.Errorf("%w %s", ErrLeft, names),
		os.WriteFile(filepath.Join(c.dir, leftFile), []byte(names), 0o600))
}

// release gives the name up. With keep it leaves the directory, which is a leftover from then on.
func (c *claim) release(keep bool) {
	if !keep {
		_ = os.RemoveAll(c.dir)
	}
	_ = c.lock.Close()
}

// Down ends the lab of that name and returns when nothing of it is left. alive says
// whether the lab was alive; otherwise Down removed a leftover.
func Down(name string) (alive bool, err error) {
	dir, err := stateDir(name)
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(dir); err != nil {
		return false, fmt.Errorf("lab %s: %w", name, ErrNoLab)
	}
	f, err := lock(dir)
	if errors.Is(err, errHeld) {
		alive = true
		if f, err = endHolder(dir); f == nil && err == nil {
			return true, nil // it removed everything itself
		}
	}
	if err != nil {
		return alive, fmt.Errorf("lab %s: %w", name, err)
	}
	defer f.Close()
	if names, err := os.ReadFile(filepath.Join(dir, leftFile)); err == nil && alive {
		return alive, fmt.Errorf("lab %s: %w %s: it is in %s", name, ErrLeft, names, dir)
	}
	if err := endStrays(dir); err != nil {
		return alive, fmt.Errorf("lab %s: %w: it is in %s", name, err, dir)
	}
	return alive, os.RemoveAll(dir)
}

// endStrays ends what a killed holder left in its namespaces: commands of Exec, and what its daemons had
// started. One process of a namespace has a file of the lab's in its command line, or its directory in its
// environment. The others are known by the namespace.
func endStrays(dir string) error {
	own, err := netns.IDOf(0)
	if err != nil {
		return err
	}
	var ids []netns.ID
	netns.Processes(func(pid int) bool {
		args, errArgs := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		env, errEnv := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		id, err := netns.IDOf(pid)
		if err = errors.Join(err, errArgs, errEnv); err == nil && id != own &&
			(strings.Contains(string(args), dir+"/") || strings.Contains(string(env), dirEnv+"="+dir+"\x00")) {
			ids = append(ids, id)
		}
		return false
	})
	if left := netns.End(politely, ids...); len(left) > 0 {
		return fmt.Errorf("%w %v", ErrLeft, left)
	}
	return nil
}

// politely is how long a holder has to end after being asked, and then after SIGKILL.
const politely = 15 * time.Second

// endHolder asks the holder to end, waits, and kills it if it does not. It returns the lock if the directory
// is still there.
func endHolder(dir string) (*os.File, error) {
	pid, err := holderPID(dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, downFile), nil, 0o600); err != nil &&
		!errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("end its holder, pid %d: %w", pid, err)
		}
		if f, gone := waitLock(dir); gone || f != nil {
			return f, nil
		}
	}
	return nil, fmt.Errorf("its holder, pid %d, does not die", pid)
}

// waitLock polls for the lock. gone says that the directory has been removed.
func waitLock(dir string) (f *os.File, gone bool) {
	for end := time.Now().Add(politely); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return nil, true
		}
		if f, err := lock(dir); err == nil {
			return f, false
		}
	}
	return nil, false
}

// Entry is one lab of this user. The document of them is a list, so that each entry has the version.
type Entry struct {
	SchemaVersion int    `json:"schema_version"`
	Name          string `json:"name"`
	// Alive is false for a leftover.
	Alive bool `json:"alive"`
	// Info is nil until the lab is up, and while it ends.
	Info *Info `json:"info,omitempty"`
}

// List returns all labs of this user, sorted by name.
func List() ([]Entry, error) {
	root, err := stateRoot()
	if err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	all := []Entry{}
	for _, d := range dirs {
		e := Entry{SchemaVersion: 1, Name: d.Name()}
		switch s, _, err := readState(filepath.Join(root, d.Name())); {
		case err == nil:
			e.Alive, e.Info = true, s.Info
		case errors.Is(err, unix.ENOTDIR):
			continue // not the directory of a lab
		default:
			e.Alive = !errors.Is(err, ErrNoLab)
		}
		all = append(all, e)
	}
	return all, nil
}
