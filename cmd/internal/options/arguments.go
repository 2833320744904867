package options

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"weft/lease"
)

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
