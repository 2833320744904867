// Package buildinfo prints which version of a program this is, for people and for scripts, alike in all
// programs.
package buildinfo

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
)

// ErrUsage is wrapped by errors about the command line.
var ErrUsage = errors.New("wrong usage")

// Version returns the linker's version, else the one that Go recorded for the module, else "unknown".
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// Document is what is printed as JSON.
type Document struct {
	SchemaVersion int    `json:"schema_version"`
	Program       string `json:"program"`
	Version       string `json:"version"`
	// Go is the version of the compiler, and Platform what was compiled for, as in linux/amd64.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Print writes the version of program to w: a line, or a Document.
func Print(w io.Writer, program, version string, asJSON bool) error {
	if !asJSON {
		_, err := fmt.Fprintln(w, program, version)
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(Document{1, program, version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
}

// Asked reports whether the first of a program's arguments asks for its version.
func Asked(args []string) bool {
	return len(args) > 0 && slices.Contains([]string{"version", "-version", "--version", "-v"}, args[0])
}

// Command is the command version of a program that has no other use for cobra. args are those behind the
// word. The error wraps ErrUsage if it is about them.
func Command(w io.Writer, program, version string, args []string) error {
	fs := flag.NewFlagSet("version", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	asJSON := fs.Bool("json", false, "")
	err := fs.Parse(args)
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("%q: version takes no argument", fs.Arg(0))
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		return fmt.Errorf("%w: %w\nusage: %s version [--json]", ErrUsage, err, program)
	}
	if err != nil {
		_, err = fmt.Fprintf(w, "usage: %s version [--json]\n", program)
		return err
	}
	return Print(w, program, version, *asJSON)
}
