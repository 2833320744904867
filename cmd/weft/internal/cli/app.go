// Package cli has what the commands of weft share: the App with its flags and the client of weftd, words for
// nodes, tables and units, the terminal, and how a wrong command line is answered.
package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/internal/running"
)

// App is what the commands have in common: the flags of all that ask the daemon, of which one runs.
type App struct {
	Version string // of this program
	Socket  string
	JSON    bool
}

// NewApp returns the App of the program of that version.
func NewApp(version string) *App { return &App{Version: version} }

// Print prints v as a document with --json, else what text prints of it.
func (c *App) Print(w io.Writer, v any, text func(io.Writer) error) error {
	if c.JSON {
		return PrintDocument(w, v)
	}
	return text(w)
}

// Client asks the daemon at the socket that the flags name.
func (c *App) Client() *control.Client { return control.NewClient(c.Socket) }

// Bind adds the common flags to cmd.
func (c *App) Bind(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	idMap, _ := os.ReadFile("/proc/self/uid_map") // where there is none, an id is what it is
	socket := defaultSocket(os.Getuid(), outside(os.Getuid(), string(idMap)), control.DefaultSocket,
		os.Getenv, exists)
	if env := os.Getenv("WEFTD_CONTROL_SOCKET"); env != "" {
		// as weftd itself reads it, and weft lab exec sets it
		socket = env
	}
	f.StringVar(&c.Socket, "control-socket", socket, "Unix socket of the weftd to ask")
	f.BoolVar(&c.JSON, "json", false, "print JSON, whose fields are stable")
}

// defaultSocket is that of the host's weftd, or of the user's own. An ordinary user asks the host's only if
// there is no other. Root, perhaps in a user namespace only, asks the own one only if there is none of the
// host's. there says whether a socket exists. outer is the user's id outside of the user namespace, by which
// /run/user has its directory: inside weftd's user namespace the user appears as root.
func defaultSocket(uid, outer int, hosts string, env func(string) string, there func(string) bool) string {
	name, err := os.Hostname()
	if err != nil {
		return hosts
	}
	dirs, err := options.UserDirs(env, outer, name)
	if err != nil {
		return hosts
	}
	own := filepath.Join(dirs.Runtime, filepath.Base(hosts))
	if uid == 0 && (there(hosts) || !there(own)) || uid != 0 && !there(own) && there(hosts) {
		return hosts
	}
	return own
}

// outside returns what a user's id is outside of the user namespace that has that map of ids
// (user_namespaces(7)).
func outside(uid int, idMap string) int {
	for line := range strings.Lines(idMap) {
		var first, outer, count int
		if n, err := fmt.Sscan(line, &first, &outer, &count); n == 3 && err == nil && uid >= first &&
			uid-first < count {
			return outer + uid - first
		}
	}
	return uid
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// StateDir returns the state directory of the weftd that runs here, else the usual one, and what is known of
// that weftd.
func (c *App) StateDir(ctx context.Context) (string, running.Process) {
	asked, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	s, err := c.Client().Status(asked)
	pid := c.Client().Listener(ctx)
	if err == nil {
		pid = running.Find(pid, s.PID)
	}
	p, unread := running.Read(pid)
	if err == nil && s.Cache.File != "" {
		dir := filepath.Dir(s.Cache.File)
		if _, gone := os.Stat(dir); gone == nil {
			return dir, p
		}
	}
	// One that is stopped does not answer, and one in a container has another view of the files: how it was
	// started is there in both cases.
	if cfg, _ := p.Settings(); unread == nil && cfg.CacheDir != "" {
		// what else is wrong with them is weft doctor's
		return p.Path(cfg.CacheDir), p
	}
	return cmp.Or(os.Getenv("WEFTD_CACHE_DIR"), UsualCacheDir), p
}

// UsualCacheDir is weftd's state directory unless it was told another.
const UsualCacheDir = "/var/lib/weft"

// These are the exit statuses besides 0. A command that weft runs for the user has its own.
const (
	ExitFailure  ExitStatus = 1
	ExitUsage    ExitStatus = 2
	ExitNotReady ExitStatus = 3
)

// ExitStatus is a status with which weft ends and says no more, as all is printed.
type ExitStatus int

func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// StatusError is err, else the status as an error; nil if it is 0.
func StatusError(status int, err error) error {
	if err != nil || status == 0 {
		return err
	}
	return ExitStatus(status)
}

// WithHangup returns a context that also ends when the terminal goes away.
func WithHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
}
