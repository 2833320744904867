package rootless

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
)

// The words of the variable options.Inside, which say what a weftd that was executed again has to do.
const (
	// and the descriptors of the network and, if it was entered by one, of the user namespace, each behind a
	// colon
	wordJoin = "join"
	wordNew  = "new"  // make a network namespace
	wordTry  = "try," // only try what follows it
	wordKeep = "keep" // be in the network namespace, so that others find it
)

// Found reports whether this process is to be rootless though nobody asked for it: it has no rights over the
// network namespace that it is in. A process that is root on this host is not: it lacks a capability by
// mistake.
func Found() bool {
	if hasRights() {
		return false
	}
	here, err := stat("/proc/self/ns/user")
	return os.Geteuid() != 0 || err == nil && here.Ino != firstUserNS
}

// firstUserNS is the inode of the user namespace that the kernel starts with (PROC_USER_INIT_INO of
// proc_ns.h).
const firstUserNS = 0xEFFFFFFD

// Aside does what a process was executed for that is no weftd, but a part of one: it tries whether weftd can
// enter a namespace, or keeps one. done says that this was such a process.
func Aside(stdin *os.File) (done bool, err error) {
	word, tried := strings.CutPrefix(os.Getenv(options.Inside), wordTry)
	switch {
	case tried:
		return true, try(word)
	case word == wordKeep:
		return true, keep(stdin)
	}
	return false, nil
}

// Enter brings this process to where it has rights over the TUN's network namespace, and returns that. If it
// has to go into another user namespace for that, it does not return: it executes args, this process's own,
// again. An error says what is missing and what to do.
func Enter(cfg options.Config, args []string) (options.Place, error) {
	if word := os.Getenv(options.Inside); word != "" {
		outer := os.Getenv(options.UserID)
		// Programs that weftd starts shall not take themselves for rootless.
		if err := errors.Join(os.Unsetenv(options.Inside), os.Unsetenv(options.UserID)); err != nil {
			return options.Place{}, err
		}
		p, err := arrive(word, cfg)
		p.Inside, p.Outer = true, outer
		return p, err
	}
	r := cfg.Rootless
	switch {
	case r.TUNNetns != "":
		t, err := find(r.TUNNetns)
		if err != nil {
			return options.Place{}, fmt.Errorf("--tun-netns %s: %w", r.TUNNetns, err)
		}
		if t.ours {
			return t.direct(r.TUNNetns)
		}
		return options.Place{}, again(t.way(), args)
	case r.On:
		// A second weftd by mistake would end at once, and have noted a keeper of its own, which ends with it: the
		// first one's namespace would be lost to its next start.
		if err := control.Occupied(cfg.ControlSocket); err != nil {
			return options.Place{}, err
		}
		if t, ok := kept(cfg.CacheDir); ok {
			return options.Place{}, again(t.way(), args)
		}
		return options.Place{}, again(way{tool: "unshare", args: []string{"--user", "--map-root-user"},
			word: wordNew}, args)
	}
	return options.Place{}, nil
}

// Again returns the variables by which a program that is executed in this one's place finds itself in p, and
// the descriptor that they name: 0 for none.
func Again(p options.Place) (env []string, namespace int) {
	if !p.Inside {
		return nil, 0
	}
	return []string{fmt.Sprintf("%s=%s:%d", options.Inside, wordJoin, p.FD), options.UserID + "=" + p.Outer},
		p.FD
}

// Try says whether Enter would succeed, without going anywhere.
func Try(cfg options.Config) error {
	r := cfg.Rootless
	switch {
	case r.TUNNetns != "":
		t, err := find(r.TUNNetns)
		if err != nil {
			return fmt.Errorf("--tun-netns %s: %w", r.TUNNetns, err)
		}
		defer t.close()
		if t.ours {
			return nil
		}
		return t.way().try()
	case r.On:
		return way{tool: "unshare", args: []string{"--user", "--map-root-user"}, word: wordNew}.try()
	}
	return nil
}

// way is how a user namespace is entered.
type way struct {
	tool string
	args []string // of the tool; in place of userFD there is the user namespace's descriptor
	word string
	user int // descriptor of the user namespace; 0 for none
	net  int // descriptor of the network namespace; 0 for none
	pid  int // whose it is; 0 if that is not known
}

// command is the command line that executes program in the user namespace, with the descriptors as they are
// numbered there.
func (w way) command(tool, program string, args []string, user, net int) (argv []string, word string) {
	argv = append([]string{tool}, w.args...)
	if w.user != 0 {
		argv = append(argv, fmt.Sprint("--user=/proc/self/fd/", user))
	}
	argv = append(append(argv, "--", program), args...)
	if word = w.word; w.net != 0 {
		word = fmt.Sprint(w.word, ":", net)
	}
	if w.user != 0 {
		word = fmt.Sprint(word, ":", user)
	}
	return argv, word
}

// again executes this program in the user namespace, after it has tried that.
func again(w way, args []string) error {
	if err := w.try(); err != nil {
		return err
	}
	tool, program, err := w.programs()
	if err != nil {
		return err
	}
	for _, fd := range []int{w.user, w.net} {
		if fd == 0 {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hand on the namespace: %w", err)
		}
	}
	argv, word := w.command(tool, program, args[1:], w.user, w.net)
	// which asks a daemon to reload; ignored, it does not end the programs that are between here and there
	signal.Ignore(syscall.SIGHUP)
	return fmt.Errorf("execute %s: %w", tool, syscall.Exec(tool, argv, environment(word)))
}

// environment is this process's with the words for the next one. The user's id is another one in there, and
// so are the directories that follow from it.
func environment(word string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		// Go takes the first of several. Even an empty one would have weftd go into a namespace again and again.
		return strings.HasPrefix(v, options.Inside+"=") || strings.HasPrefix(v, options.UserID+"=")
	})
	return append(env, options.Inside+"="+word, options.UserID+"="+strconv.Itoa(os.Getuid()))
}

// programs finds the tool and this program.
func (w way) programs() (tool, program string, err error) {
	if tool, err = exec.LookPath(w.tool); err != nil {
		return "", "", fmt.Errorf("%w: install util-linux, which has it: weftd enters the user namespace by it",
			err)
	}
	if program, err = os.Executable(); err != nil {
		return "", "", fmt.Errorf("find this program, which is executed again: %w", err)
	}
	return tool, program, nil
}

// try executes this program in the user namespace as a child, which looks whether it could work there.
func (w way) try() error {
	tool, program, err := w.programs()
	if err != nil {
		return err
	}
	argv, word := w.command(tool, program, nil, 4, 3)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = environment(wordTry + word)
	var files []*os.File
	for _, fd := range []int{w.net, w.user} { // numbered from 3 on
		if fd == 0 {
			continue
		}
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("hand on the namespace: %w", err)
		}
		f := os.NewFile(uintptr(copied), "namespace")
		defer func() { _ = f.Close() }() // a copy
		files = append(files, f)
	}
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	said := strings.TrimPrefix(strings.TrimSpace(string(out)), "weftd: ")
	if said == "" {
		said = err.Error()
	}
	return w.explain(said, readHost())
}
