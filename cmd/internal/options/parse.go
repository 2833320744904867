package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"weft/lease"
)

// ErrHelp is returned by Parse if help was asked for.
var ErrHelp = flag.ErrHelp

// ErrUsage is wrapped by every error that is about the command line itself.
var ErrUsage = errors.New("usage: weftd [flags] (see weftd --help)")

// Parse reads args (without the program's name) and environ (NAME=value, as
// os.Environ gives it). The error joins every fault and wraps ErrUsage; it is
// ErrHelp alone if help was asked for. The Config is complete as far as it could
// be read also when there is an error, for --check.
func Parse(args, environ []string) (Config, error) {
	c := defaults()
	fs := newFlagSet(&c)
	faults, err := parseArgs(fs, args)
	if err != nil {
		return c, ErrHelp
	}
	if c.Version && len(faults) == 0 {
		return c, nil
	}
	if fs.NArg() > 0 {
		faults = append(faults, fmt.Errorf("argument %q is not a flag, and what follows it is not read; a "+
			"boolean flag is switched off by --flag=false", fs.Arg(0)))
	}
	sources := map[string]string{}
	fs.Visit(func(f *flag.Flag) { sources[f.Name] = "flag" })
	env := environment(environ)
	faults = append(faults, fromEnvironment(fs, env, sources)...)
	c.Unknown, c.Unused = unknown(fs, env), unused(env)
	c.Kube.NodeName, c.Kube.PodName, c.Kube.PodNamespace = env["NODE_NAME"], env["POD_NAME"],
		env["POD_NAMESPACE"]
	c.WireGuardKeyFile = env["WIREGUARD_KEY_FILE"]
	c.Rootless.Given = sources["rootless"] != ""
	if !c.Rootless.Given && env[Inside] != "" {
		c.Rootless.On = true
	}
	derived := map[string]string{}
	if c.Rootless.On {
		faults = append(faults, c.userDefaults(env, sources, derived)...)
	}
	c.Settings = settings(fs, sources, derived)
	c.sources = sources
	if sources["tun-netns"] != "" && c.Rootless.TUNNetns == "" {
		faults = append(faults, errors.New("--tun-netns is given and empty, as by a command in $(…) that printed "+
			"nothing: give it the id of a process in the namespace, or its path; without the flag weftd makes a "+
			"namespace of its own"))
	}
	c.NetConfigGiven = sources["net-config-path"] != ""
	c.HealthzIPGiven = sources["healthz-ip"] != ""
	c.endpointsGiven = sources["etcd-endpoints"] != ""
	faults = append(faults, c.validate()...)
	if err := errors.Join(faults...); err != nil {
		return c, fmt.Errorf("%w\n%w", err, ErrUsage)
	}
	return c, nil
}

func newFlagSet(c *Config) *flag.FlagSet {
	fs := flag.NewFlagSet("weftd", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned, usage is printed by Usage
	define(fs, sections(c)...)
	return fs
}

// isMode says that a flag is something to do rather than a setting, and so has no
// variable. flannel, too, acts on --version before it reads the environment.
func isMode(name string) bool { return rowOf(name).effect == 0 }

// variables names the environment variables of a flag, strongest first.
func variables(name string) []string {
	v := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	if rowOf(name).own {
		return []string{"WEFTD_" + v}
	}
	return []string{"WEFTD_" + v, "FLANNELD_" + v}
}

// fromEnvironment sets every flag that the command line did not set. Unlike in
// flannel, a value that does not parse is an error: otherwise weftd would run with
// the default, and nobody would notice a typing mistake in a unit file.
func fromEnvironment(fs *flag.FlagSet, env, sources map[string]string) []error {
	var faults []error
	fs.VisitAll(func(f *flag.Flag) {
		if sources[f.Name] != "" || isMode(f.Name) {
			return
		}
		for _, name := range variables(f.Name) {
			value := env[name]
			if value == "" {
				continue
			}
			if err := f.Value.Set(value); err != nil {
				faults = append(faults, fmt.Errorf("environment variable %s: invalid value %q: %w", name, value, err))
			}
			sources[f.Name] = "env " + name
			return
		}
	})
	return faults
}

func environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}

// unknown finds variables with our own prefix that name no flag, most likely
// typing mistakes. Variables that begin with FLANNELD_ may be meant for flannel.
func unknown(fs *flag.FlagSet, env map[string]string) []string {
	known := map[string]bool{}
	fs.VisitAll(func(f *flag.Flag) {
		known[variables(f.Name)[0]] = !isMode(f.Name)
	})
	var out []string
	for name, value := range env {
		if strings.HasPrefix(name, "WEFTD_") && !known[name] && value != "" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// unused finds variables that flannel's manifests set and that have no effect here.
func unused(env map[string]string) []string {
	var out []string
	for _, name := range []string{"EVENT_QUEUE_DEPTH", "CONT_WHEN_CACHE_NOT_READY"} {
		if env[name] != "" {
			out = append(out, name)
		}
	}
	return out
}

func settings(fs *flag.FlagSet, sources, derived map[string]string) []Setting {
	var out []Setting
	fs.VisitAll(func(f *flag.Flag) {
		if isMode(f.Name) {
			return
		}
		source := sources[f.Name]
		if source == "" {
			source = "default"
		}
		if from := derived[f.Name]; from != "" {
			source += " (" + from + ")"
		}
		out = append(out, Setting{Name: f.Name, Value: f.Value.String(), Source: source})
	})
	return out
}

// parseArgs reads all of args, and goes on after a fault in one of them. The error is ErrHelp or nil.
func parseArgs(fs *flag.FlagSet, args []string) (faults []error, err error) {
	seen := map[string]bool{}
	for {
		err := fs.Parse(args)
		if err == nil || errors.Is(err, flag.ErrHelp) {
			return faults, err
		}
		if !seen[err.Error()] {
			seen[err.Error()] = true
			faults = append(faults, meant(fs, err))
		}
		rest := fs.Args()
		unknown := strings.Contains(err.Error(), "not defined: ")
		switch {
		case len(rest) == len(args) || strings.HasPrefix(err.Error(), "bad flag syntax"):
			// the faulty argument is still there
			rest = rest[1:]
		case unknown && !strings.Contains(args[len(args)-len(rest)-1], "=") && len(rest) > 0 &&
			!strings.HasPrefix(rest[0], "-"):
			rest = rest[1:] // most likely its value
		}
		args = rest
	}
}

// meant adds to the error about an unknown flag the name of the flag that is most like it.
func meant(fs *flag.FlagSet, err error) error {
	_, name, unknown := strings.Cut(err.Error(), "not defined: -")
	if !unknown {
		return err
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	if near := lease.Nearest(strings.TrimPrefix(name, "-"), names...); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return err
}
