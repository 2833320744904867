// Package systemdtest stands in for systemd's descriptor store in tests that count on more restarts than are
// tried with systemd itself.
package systemdtest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Manager is a service manager with the descriptor store that sd_notify(3) and sd_listen_fds(3) describe. It
// is safe for concurrent use.
type Manager struct {
	// Path is the socket of NOTIFY_SOCKET, and Most is FileDescriptorStoreMax=.
	Path string
	Most int

	t    *testing.T
	conn *net.UnixConn

	mu    sync.Mutex // protects what follows
	store []stored   // the latest first, as systemd has them
	beats int        // how often its watchdog was answered
}

type stored struct {
	name string
	fd   int
}

// New makes a Manager that keeps so many descriptors at the most, and ends with the test.
func New(t *testing.T, most int) *Manager {
	t.Helper()
	m := &Manager{t: t, Path: filepath.Join(t.TempDir(), "notify"), Most: most}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.Path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(m.serve)
	t.Cleanup(func() {
		_ = m.conn.Close()
		wg.Wait()
		m.Drop()
	})
	return m
}

// Drop closes what is kept, as systemctl stop does.
func (m *Manager) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.store {
		_ = unix.Close(s.fd)
	}
	m.store = nil
}

func (m *Manager) serve() {
	b, oob := make([]byte, 4096), make([]byte, 4096)
	for {
		n, on, _, _, err := m.conn.ReadMsgUnix(b, oob)
		if err != nil {
			return
		}
		var fds []int
		messages, err := unix.ParseSocketControlMessage(oob[:on])
		for i := range messages {
			some, bad := unix.ParseUnixRights(&messages[i])
			fds, err = append(fds, some...), errors.Join(err, bad)
		}
		if err != nil {
			m.t.Error(err)
		}
		vars := map[string]string{}
		for _, line := range strings.Split(string(b[:n]), "\n") {
			k, v, _ := strings.Cut(line, "=")
			vars[k] = v
		}
		for _, fd := range m.told(vars, fds) { // what is over, and the barrier's
			_ = unix.Close(fd)
		}
	}
}

// told does what a message says, and returns the descriptors that are not kept.
func (m *Manager) told(vars map[string]string, fds []int) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case vars["WATCHDOG"] == "1":
		m.beats++
	case vars["FDSTOREREMOVE"] == "1":
		m.store = slices.DeleteFunc(m.store, func(s stored) bool {
			if s.name == vars["FDNAME"] {
				_ = unix.Close(s.fd)
			}
			return s.name == vars["FDNAME"]
		})
	case vars["FDSTORE"] == "1":
		if name := vars["FDNAME"]; name == "" || len(name) > 255 || strings.ContainsAny(name, ":\n") ||
			vars["FDPOLL"] != "0" {
			m.t.Errorf("%q", vars)
		}
		for len(fds) > 0 && len(m.store) < m.Most && !m.has(fds[0]) {
			m.store, fds = slices.Insert(m.store, 0, stored{vars["FDNAME"], fds[0]}), fds[1:]
		}
	}
	return fds
}

// has reports whether fd is a duplicate of one that is kept. Systemd drops a
// duplicate under whatever name it comes. A kept descriptor has the name under which it came first.
func (m *Manager) has(fd int) bool {
	return slices.ContainsFunc(m.store, func(s stored) bool {
		is, err := same(s.fd, fd)
		if err != nil {
			m.t.Error(err)
		}
		return is
	})
}

// Count is how many descriptors are kept.
func (m *Manager) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.store)
}

// Beats is how often its watchdog was answered.
func (m *Manager) Beats() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beats
}

// Env is what a service's process has as variables, but for LISTEN_PID.
func (m *Manager) Env() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, s := range m.store {
		names = append(names, s.name)
	}
	return map[string]string{"NOTIFY_SOCKET": m.Path, "FDSTORE": strconv.Itoa(m.Most),
		"LISTEN_FDS": strconv.Itoa(len(names)), "LISTEN_FDNAMES": strings.Join(names, ":")}
}

// Hand gives cmd, which has not started, its variables and what is kept. release closes the duplicates once
// it has.
func (m *Manager) Hand(cmd *exec.Cmd) (release func(), err error) {
	program, err := filepath.EvalSymlinks(cmd.Path) // which may be this process's own
	if err != nil {
		return nil, err
	}
	// The variable names the process that is started, whose number nobody knows before.
	cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, program}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
	for k, v := range m.Env() {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	release = func() {
		for _, f := range cmd.ExtraFiles {
			_ = f.Close() // a duplicate
		}
	}
	for _, s := range m.store {
		own, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			release()
			return nil, err
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, os.NewFile(uintptr(own), s.name))
	}
	return release, nil
}

// Handed has duplicates of what a next process is handed, by name. They are the caller's.
func (m *Manager) Handed() map[string][]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	fds := map[string][]int{}
	for _, s := range m.store {
		own, err := unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			m.t.Fatal(err)
		}
		fds[s.name] = append(fds[s.name], own)
	}
	return fds
}
