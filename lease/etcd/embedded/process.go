package embedded

import (
	"errors"
	"flag"
	"fmt"
	"io"
)

// Program is the command that runs a server as a process of its own. It is beside weftd, or in $PATH.
const Program = "weft-etcd"

// Report is what that process says on its standard output, as JSON, once a line: where it serves, as
// soon as it does, and why it ends, unless it was asked to.
type Report struct {
	Endpoints []string `json:"endpoints,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// Args are the process's arguments for c; its logger is left out. With debug it logs all that etcd
// says, else etcd's errors.
func (c Config) Args(debug bool) []string {
	args := []string{"--dir=" + c.Dir, "--listen=" + c.Listen, "--cert-file=" + c.CertFile, "--key-file=" +
		c.KeyFile, "--ca-file=" + c.CAFile}
	for name, on := range map[string]bool{"--insecure": c.Insecure, "--no-sync": c.NoSync, "--debug": debug} {
		if on {
			args = append(args, name)
		}
	}
	return args
}

// ParseArgs is the reverse of Args. The error says which argument is wrong.
func ParseArgs(args []string) (c Config, debug bool, err error) {
	f := flag.NewFlagSet(Program, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.Dir, "dir", "", "")
	f.StringVar(&c.Listen, "listen", "", "")
	f.StringVar(&c.CertFile, "cert-file", "", "")
	f.StringVar(&c.KeyFile, "key-file", "", "")
	f.StringVar(&c.CAFile, "ca-file", "", "")
	f.BoolVar(&c.Insecure, "insecure", false, "")
	f.BoolVar(&c.NoSync, "no-sync", false, "")
	f.BoolVar(&debug, "debug", false, "")
	if err = f.Parse(args); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("%q is no flag", f.Arg(0))
	}
	if errors.Is(err, flag.ErrHelp) {
		err = errors.New("weftd starts this program, and gives it its arguments: see weftd --help, --embedded-etcd")
	}
	return c, debug, err
}
