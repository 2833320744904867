package confine

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"

	"weft/cmd/internal/hostlocal"
	"weft/cmd/internal/options"
)

// Enter gives up what --confine says, for the rest of this process's life. An error is of a weftd that was to
// be confined to its files and is not; that capabilities could not be given up is logged, since many a
// container does not let them.
//
// It is called once there is nothing more to open that takes other rights, and before anything is started.
func Enter(cfg options.Config, log *slog.Logger) error {
	if cfg.Confine == options.ConfineOff {
		return nil
	}
	o := needs(cfg)
	if cfg.Confine == options.ConfineFiles {
		if err := enterFiles(o.Files, log); err != nil {
			return fmt.Errorf("--confine=%s: %w; --confine=%s goes without",
				cfg.Confine, err, options.ConfineCapabilities)
		}
	}
	if cfg.Rootless.Place.User { // its capabilities are over what is its user's anyway
		return nil
	}
	keep, why := Keep(o)
	have, err := Drop(keep)
	if err != nil {
		log.Warn("not all rights that weftd has no need of could be given up", "reason", err)
	} else {
		log.Info("rights given up", "left", text(have))
	}
	if why != "" {
		log.Warn("weftd keeps CAP_DAC_OVERRIDE, with which it could write to every file", "reason", why)
	}
	return nil
}

// needs says what weftd does with these settings.
func needs(cfg options.Config) Options {
	o := Options{
		Files:          []string{cfg.CacheDir, filepath.Dir(cfg.SubnetFile)},
		OtherNamespace: cfg.Rootless.TUNNetns != "",
	}
	if cfg.ControlSocket != "" {
		o.Files = append(o.Files, filepath.Dir(cfg.ControlSocket))
	}
	if cfg.WireGuardKeyFile != "" { // beside it the next one is written
		o.Files = append(o.Files, filepath.Dir(cfg.WireGuardKeyFile))
	}
	if cfg.UsesEmbedded() {
		o.Files = append(o.Files, cfg.Embedded.Dir)
	}
	if _, err := os.Stat(hostlocal.DefaultDir); err == nil {
		// where the addresses of pods that are gone are freed
		o.Files = append(o.Files, hostlocal.DefaultDir)
	}
	slices.Sort(o.Files)
	o.Files = slices.Compact(o.Files)
	return o
}

// xtablesLock is what iptables opens for writing; the directory is not to be opened to it for that.
const xtablesLock = "/run/xtables.lock"

// enterFiles confines writing to dirs, which are made if they are not there, and to what the kernel has for a
// network.
func enterFiles(dirs []string, log *slog.Logger) error {
	if os.Getenv(confined) != "" {
		// The weftd that started this one was confined, so this one is. The kernel stacks no more than 16.
		return nil
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if f, err := os.OpenFile(xtablesLock, os.O_CREATE|os.O_RDONLY, 0o600); err == nil {
		_ = f.Close()
	}
	absent, err := Writes(append(slices.Clone(dirs), "/proc/sys/net", "/dev/net/tun", "/dev/null", xtablesLock))
	if err != nil {
		return err
	}
	if len(absent) > 0 {
		log.Debug("not there, so that nothing is written to it", "paths", absent)
	}
	log.Info("weftd writes to no other files", "directories", strings.Join(dirs, " "))
	return os.Setenv(confined, "files")
}

// confined is the variable by which a weftd that another one started knows that its writing is confined
// already.
const confined = "WEFT_CONFINED"

// text is the capabilities as setpriv(1) and systemd name them.
func text(vs []cap.Value) string {
	if len(vs) == 0 {
		return "none"
	}
	var names []string
	for _, v := range vs {
		names = append(names, strings.ToUpper(v.String()))
	}
	return strings.Join(names, " ")
}

// Pass has the next program that this process executes keep the process's capabilities. Without it one whose
// user is not root loses them: after no_new_privs a file gives none. undo takes it back.
func Pass() (undo func(), err error) {
	if os.Geteuid() == 0 {
		return func() {}, nil // root keeps what it has
	}
	had := cap.IABGetProc()
	next, err := had.Dup()
	if err == nil {
		err = next.Fill(cap.Amb, cap.GetProc(), cap.Permitted)
	}
	if err == nil {
		err = next.SetProc()
	}
	if err != nil {
		return func() {}, fmt.Errorf("pass capabilities on: %w", err)
	}
	return func() { _ = had.SetProc() }, nil // less is always given
}
