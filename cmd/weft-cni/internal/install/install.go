// Package install puts the plugin and a network configuration where a container runtime
// looks for them. It needs no shell, so that it can run in an image that has none.
package install

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"weft/lease/atomicfile"
)

// ErrUsage is wrapped by errors about the command line.
var ErrUsage = errors.New("see weft-cni install --help")

const (
	defaultBinDir = "/opt/cni/bin"
	defaultName   = "weft"
)

// flags are those of weft-cni install.
type flags struct {
	binDir, conf, confFile string
	names                  names
}

// names is a flag that may be given more than once.
type names []string

func (n *names) String() string { return strings.Join(*n, ",") }

func (n *names) Set(s string) error {
	if s == "" || s == "." || s == ".." || strings.ContainsRune(s, filepath.Separator) {
		return fmt.Errorf("%q is no name of a file", s)
	}
	*n = append(*n, s)
	return nil
}

func (f *flags) set(w io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("install", flag.ContinueOnError)
	fs.SetOutput(w)
	fs.StringVar(&f.binDir, "bin-dir", defaultBinDir,
		"`directory` where the runtime looks for plugins; made if missing; \"\" installs no program")
	fs.Var(&f.names, "name", "`name` to install the program under: the type in network configurations; may be "+
		"repeated (default "+defaultName+")")
	fs.StringVar(&f.conf, "conf", "", "network configuration to install, a .conflist or .conf `file`; - is "+
		"standard input")
	fs.StringVar(&f.confFile, "conf-file", "",
		"`file` to install it as, such as /etc/cni/net.d/10-flannel.conflist")
	return fs
}

// Usage prints the flags.
func Usage(w io.Writer) {
	fmt.Fprint(w, `weft-cni install copies this program, and then a network configuration, each in one step:
a runtime sees the old file or the new. The configuration comes last, since a runtime
takes a node for ready when it finds one. With --name flannel, configurations of
type flannel work as they are. Where the configuration has a list cniVersions, its plugins
in --bin-dir, and those that this program calls, are asked, and what one of them does not
know is left out.

  weft-cni install --name flannel --name weft \
      --conf /etc/kube-flannel/cni-conf.json --conf-file /etc/cni/net.d/10-flannel.conflist

`)
	new(flags).set(w).PrintDefaults()
}

// Run runs the command. It prints a line to stdout for each thing that it does.
func Run(args []string, stdout io.Writer) error {
	var f flags
	fs := f.set(io.Discard)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		Usage(stdout)
		return nil
	case err != nil:
		return fmt.Errorf("install: %w: %w", err, ErrUsage)
	case fs.NArg() > 0:
		return fmt.Errorf("install takes flags only, not %q: %w", fs.Arg(0), ErrUsage)
	case (f.conf == "") != (f.confFile == ""):
		return fmt.Errorf("--conf and --conf-file go together: %w", ErrUsage)
	}
	if f.names == nil {
		f.names = names{defaultName}
	}
	// All input is checked before anything is changed.
	conf, err := f.readConf()
	if err != nil {
		return err
	}
	if f.binDir != "" {
		if err := f.program(stdout); err != nil {
			return err
		}
	}
	if conf == nil {
		return nil
	}
	if conf, err = f.trim(conf, stdout); err != nil {
		return fmt.Errorf("network configuration %s: %w", f.conf, err)
	}
	write := func(w io.Writer) error { _, err := w.Write(conf); return err }
	if err := atomicfile.WriteFunc(f.confFile, 0o644, 0o755, write); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "installed", f.confFile)
	return nil
}

func (f flags) program(stdout io.Writer) error {
	for _, name := range f.names {
		to := filepath.Join(f.binDir, name)
		err := atomicfile.WriteFunc(to, 0o755, 0o755, func(w io.Writer) error {
			self, err := os.Open("/proc/self/exe") // also when the file was replaced since
			if err != nil {
				return err
			}
			defer self.Close()
			_, err = io.Copy(w, self)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(stdout, "installed", to)
	}
	return nil
}

// maxConf bounds a network configuration, in bytes.
const maxConf = 1 << 20

// readConf reads the configuration and checks whether a runtime could use it.
func (f flags) readConf() ([]byte, error) {
	if f.conf == "" {
		return nil, nil
	}
	in := os.Stdin
	if f.conf != "-" {
		file, err := os.Open(f.conf)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	b, err := io.ReadAll(io.LimitReader(in, maxConf+1))
	if err == nil && len(b) > maxConf {
		err = fmt.Errorf("more than %d bytes", maxConf)
	}
	var c networkConf
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return nil, fmt.Errorf("network configuration %s: %w", f.conf, err)
	}
	return b, nil
}

// check says why a runtime could not use a network configuration.
func (c networkConf) check() error {
	switch {
	case c.Name == "":
		return errors.New(`it has no "name"`)
	case c.Plugins == nil && c.Type == "":
		return errors.New(`it has neither "plugins" nor "type"`)
	case c.Plugins != nil && len(c.Plugins) == 0:
		return errors.New(`its "plugins" are empty`)
	}
	for i, p := range c.Plugins {
		if p.Type == "" {
			return fmt.Errorf(`plugins[%d] has no "type"`, i)
		}
	}
	return nil
}
