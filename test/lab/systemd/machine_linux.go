package systemd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weft/test/lab"
)

// Options say what a Machine has. Paths in it are absolute.
type Options struct {
	// Dir is a directory for the machine's files, which whoever has it removes after Close.
	Dir string
	// Files are what its files say, by path.
	Files map[string]string
	// Binds are files and directories of this machine that it sees too, by path in it.
	Binds map[string]string
	// Units are those that it starts with, and whose files are in Files, in /etc/systemd/system.
	Units []string
}

// Machine is a running systemd, with all that it has started. Its methods are for one goroutine.
type Machine struct {
	first *exec.Cmd
	fault strings.Builder
	kmsg  string
	group *group
}

// boot makes a machine out of what the first process of new namespaces finds, and becomes systemd.
//
//go:embed boot.sh
var boot string

// targets are the units that others refer to. They do nothing.
func targets() []string {
	return []string{"sysinit", "basic", "network-online", "multi-user", "shutdown"}
}

// Boot starts a systemd in host. It does not wait for what that starts. All of its processes end with Close,
// or with this process.
func Boot(host *lab.Host, o Options) (m *Machine, err error) {
	files, root := filepath.Join(o.Dir, "files"), filepath.Join(o.Dir, "root")
	m = &Machine{kmsg: filepath.Join(o.Dir, "kmsg")}
	const units = "/etc/systemd/system/"
	all := map[string]string{}
	for _, name := range targets() {
		all[units+name+".target"] = "[Unit]\nDefaultDependencies=no\n"
	}
	for path, text := range o.Files {
		all[path] = text
	}
	for path, text := range all {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(files+path), 0o755),
			os.WriteFile(files+path, []byte(text), 0o644))
	}
	wants := files + units + "multi-user.target.wants/"
	err = errors.Join(err, os.MkdirAll(wants, 0o755), os.MkdirAll(root, 0o755), os.WriteFile(m.kmsg, nil, 0o644))
	for _, name := range o.Units {
		err = errors.Join(err, os.Symlink(units+name, wants+name))
	}
	if err != nil {
		return nil, err
	}
	if m.group, err = newGroup("weft-" + strconv.Itoa(os.Getpid()) + "-" + filepath.Base(o.Dir)); err != nil {
		return nil, err
	}
	args := []string{"--cgroup", "sh", "-eu", "-c", boot, "boot"}
	for to, from := range o.Binds {
		args = append(args, from+":"+to)
	}
	slices.Sort(args[6:])
	m.first = exec.Command("unshare", args...)
	m.first.Env = append(os.Environ(), "HOST="+host.Name, "ROOT="+root, "FILES="+files, "KMSG="+m.kmsg)
	m.first.Stderr = &m.fault
	m.first.WaitDelay = time.Second // what it started may have its standard error
	m.first.SysProcAttr = &unix.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UseCgroupFD: true, CgroupFD: m.group.fd}
	if err := host.NS.Start(m.first); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: start its first process: %w", host.Name, err), m.group.remove())
	}
	return m, nil
}

// PID is systemd's as this process sees it.
func (m *Machine) PID() int { return m.first.Process.Pid }

// Path returns how this process reaches a file of the machine's.
func (m *Machine) Path(path string) string { return fmt.Sprintf("/proc/%d/root%s", m.PID(), path) }

// Command runs a program in all namespaces of the machine and returns what it printed. An error has what it
// said.
func (m *Machine) Command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter",
		append([]string{"-t", strconv.Itoa(m.PID()), "-m", "-p", "-n", "-i", "-u", "-C", "--", name}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), err
}

// Show asks systemd for properties of a unit.
func (m *Machine) Show(ctx context.Context, unit string, properties ...string) (map[string]string, error) {
	out, err := m.Command(ctx, "systemctl", "show", unit, "--property="+strings.Join(properties, ","))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[k] = v
	}
	return all, nil
}

// Log is what systemd has said.
func (m *Machine) Log() (string, error) {
	b, err := os.ReadFile(m.kmsg)
	return string(b), err
}

// Close kills all of the machine's processes.
func (m *Machine) Close() error {
	err := m.first.Process.Kill()
	_ = m.first.Wait() // it was killed
	if m.fault.Len() > 0 {
		err = errors.Join(err, errors.New(m.fault.String()))
	}
	return errors.Join(err, m.group.remove())
}

// group is a cgroup of version 2.
type group struct {
	all *os.File // the hierarchy, mounted nowhere
	fd  int
	dir string
}

// newGroup makes a group of that name.
func newGroup(name string) (*group, error) {
	context, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount cgroups: %w", err)
	}
	defer func() { _ = unix.Close(context) }() // what is mounted is another descriptor
	if err := unix.FsconfigCreate(context); err != nil {
		return nil, fmt.Errorf("mount cgroups: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount cgroups: %w", err)
	}
	g := &group{all: os.NewFile(uintptr(mount), "cgroup2"), dir: fmt.Sprintf("/proc/self/fd/%d/%s", mount, name)}
	if err = os.Mkdir(g.dir, 0o755); err == nil {
		g.fd, err = unix.Open(g.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, errors.Join(err, g.all.Close())
	}
	return g, nil
}

// remove removes the group and those in it, once their processes have ended.
func (g *group) remove() error {
	defer func() { _, _ = unix.Close(g.fd), g.all.Close() }() // nothing was written
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var dirs []string
		err = filepath.WalkDir(g.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		slices.Reverse(dirs) // those within before those around them
		for _, dir := range dirs {
			err = errors.Join(err, os.Remove(dir))
		}
		if err == nil {
			return nil
		}
	}
	return err
}
