package session

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"weft/test/lab"
)

// Bin is the folder in every session's $PATH in which the programs of Open are.
const Bin = "/srv/bin"

// User is an ordinary user of the hosts. All hosts have the same ones.
type User struct {
	Name string
	// ID is the id of the user and of the user's group.
	ID int
}

// Home is the user's home, an empty folder of each host's own.
func (u User) Home() string { return "/srv/" + u.Name }

// RuntimeDir is the user's XDG_RUNTIME_DIR.
func (u User) RuntimeDir() string { return fmt.Sprintf("/run/user/%d", u.ID) }

// Ada and Bob are the users that each host has.
func Ada() User { return User{"ada", 2001} }

// Bob is another user.
func Bob() User { return User{"bob", 2002} }

// Users returns both of them.
func Users() []User { return []User{Ada(), Bob()} }

// prepare makes a host out of what the first process of a new mount and PID namespace finds.
//
//go:embed prepare.sh
var prepare string

// Open makes host a machine that ordinary users can log in to. From then on everything that is started in the
// host is in its mount and PID namespaces. programs are files that every user can run, from Bin. All
// processes end when the lab is closed.
func Open(host *lab.Host, programs ...string) error {
	args := []string{"-eu", "-c", prepare, "prepare"}
	for _, p := range programs {
		abs, err := filepath.Abs(p)
		if err != nil {
			return err
		}
		args = append(args, abs)
	}
	first := exec.Command("sh", args...)
	first.Env = append(os.Environ(), "HOST="+host.Name, "USERS="+listed(Users()))
	first.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWPID}
	var fault strings.Builder
	first.Stderr = &fault
	out, err := first.StdoutPipe()
	if err != nil {
		return err
	}
	if err := host.NS.Start(first); err != nil {
		return fmt.Errorf("%s: start its first process: %w", host.Name, err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		_ = first.Process.Kill()
		return fmt.Errorf("%s: prepare it for ordinary users: %w: %s%s", host.Name, errors.Join(err, first.Wait()),
			line, fault.String())
	}
	go func() { // ends when the lab is closed, and its first process killed
		_, _ = io.Copy(io.Discard, out)
		_ = first.Wait()
	}()
	return host.NS.Join(first.Process.Pid)
}

func listed(users []User) string {
	var words []string
	for _, u := range users {
		words = append(words, u.Name+":"+strconv.Itoa(u.ID))
	}
	return strings.Join(words, " ")
}

// Options of a session.
type Options struct {
	// SetUID lets programs such as newuidmap have the rights of their owner. Without it no program that is
	// started can ever have more rights than the user (PR_SET_NO_NEW_PRIVS).
	SetUID bool
	// Env is added to the environment, as NAME=value.
	Env []string
}

// Argv returns what to start in a host that Open has prepared, so that u runs the program with a login's
// environment and nothing else. The process's id is the program's own, and it dies with the lab.
func Argv(u User, o Options, program string, args ...string) []string {
	id := strconv.Itoa(u.ID)
	argv := []string{"/usr/bin/setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--inh-caps=-all",
		"--pdeathsig", "KILL"}
	if !o.SetUID {
		argv = append(argv, "--no-new-privs")
	}
	argv = append(argv, "/usr/bin/env", "-i", "-C", u.Home(),
		"PATH="+Bin+":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME="+u.Home(),
		"USER="+u.Name, "LOGNAME="+u.Name, "XDG_RUNTIME_DIR="+u.RuntimeDir(), "LANG=C.UTF-8")
	return append(append(append(argv, o.Env...), program), args...)
}

// Command returns a command that u runs, to be started with host.NS.Start or Run.
func Command(u User, o Options, program string, args ...string) *exec.Cmd {
	argv := Argv(u, o, program, args...)
	return exec.Command(argv[0], argv[1:]...)
}
