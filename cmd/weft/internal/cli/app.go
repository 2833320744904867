// Package cli has what the commands of weft share: the App with its flags and the client of weftd, words for
// nodes, tables and units, the terminal, and how a wrong command line is answered.
package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
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
