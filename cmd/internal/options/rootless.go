package options

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
)

// Inside is the environment variable by which a weftd that went into a user namespace knows that, and where
// its network namespace is. A process that has it is rootless, whatever its user id seems to be.
const Inside = "WEFT_INSIDE"

// Dirs are the directories of one user's weftd (XDG Base Directory Specification).
type Dirs struct {
	// Runtime has sockets and what else does not outlast a reboot, State what does. RuntimeFrom and StateFrom
	// say what they follow from.
	Runtime, State         string
	RuntimeFrom, StateFrom string
}

// UserDirs finds them from the environment and the user's id. A home may be on a file server that many hosts
// share: the state of each is in a directory of its own, by the host's name.
func UserDirs(env func(string) string, uid int, host string) (Dirs, error) {
	var d Dirs
	switch state, home := env("XDG_STATE_HOME"), env("HOME"); {
	case filepath.IsAbs(state):
		d.State, d.StateFrom = state, "XDG_STATE_HOME"
	case filepath.IsAbs(home):
		d.State, d.StateFrom = filepath.Join(home, ".local", "state"), "HOME"
	default:
		return d, errors.New("--rootless: neither XDG_STATE_HOME nor HOME names a directory: set one, or give " +
			"--cache-dir, --control-socket and --subnet-file")
	}
	d.State = filepath.Join(d.State, "weft", filepath.Base(host))
	if run := env("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		d.Runtime, d.RuntimeFrom = filepath.Join(run, "weft"), "XDG_RUNTIME_DIR"
		return d, nil
	}
	if run := filepath.Join("/run/user", strconv.Itoa(uid)); isDir(run) {
		d.Runtime, d.RuntimeFrom = filepath.Join(run, "weft"), run
		return d, nil
	}
	d.Runtime, d.RuntimeFrom = filepath.Join(d.State, "run"), d.StateFrom+", without XDG_RUNTIME_DIR"
	return d, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// userFile is a setting whose default is in a user's directories if weftd is rootless.
type userFile struct {
	flag    string
	field   func(*Config) *string
	runtime bool
	name    string
}

func userFiles() []userFile {
	return []userFile{
		{"control-socket", func(c *Config) *string { return &c.ControlSocket }, true, "weftd.sock"},
		{"subnet-file", func(c *Config) *string { return &c.SubnetFile }, true, "subnet.env"},
		{"cache-dir", func(c *Config) *string { return &c.CacheDir }, false, ""},
		{"embedded-etcd-dir", func(c *Config) *string { return &c.Embedded.Dir }, false, "etcd"},
	}
}

// userDefaults puts what nobody gave into the user's directories, and notes in derived what that follows
// from.
func (c *Config) userDefaults(env, sources, derived map[string]string) []error {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	uid := os.Getuid()
	if n, err := strconv.Atoi(env[UserID]); err == nil {
		uid = n
	}
	dirs, fault := UserDirs(func(name string) string { return env[name] }, uid, host)
	for _, f := range userFiles() {
		if sources[f.flag] != "" {
			continue
		}
		if fault != nil {
			return []error{fault}
		}
		dir, from := dirs.State, dirs.StateFrom
		if f.runtime {
			dir, from = dirs.Runtime, dirs.RuntimeFrom
		}
		*f.field(c), derived[f.flag] = filepath.Join(dir, f.name), "rootless, by "+from
	}
	return nil
}

// UserID is the environment variable with the user's id as it is outside of the user namespace that weftd
// went into.
const UserID = "WEFT_UID"

// rootlessDefault says, for --help, what the default is without root.
func rootlessDefault(flag string) string {
	for _, f := range userFiles() {
		if f.flag != flag {
			continue
		}
		dir := "$XDG_STATE_HOME/weft/HOSTNAME"
		if f.runtime {
			dir = "$XDG_RUNTIME_DIR/weft"
		}
		return "; with --rootless " + filepath.Join(dir, f.name)
	}
	return ""
}

// IdentityPart is what of the machine this node is: all of it, or one user's state directory, since other
// users of the machine, and root, may be nodes too.
func (c Config) IdentityPart() string {
	if !c.Rootless.On {
		return ""
	}
	if dir, err := filepath.Abs(c.CacheDir); err == nil {
		return dir
	}
	return c.CacheDir
}
