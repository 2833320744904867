package options

import (
	"flag"
	"fmt"
	"io"
)

// Usage prints every flag with its default and its environment variables.
func Usage(w io.Writer) {
	c := defaults()
	fs := newFlagSet(&c)
	fmt.Fprintf(w, "weftd joins this host to a flat network of containers. It takes flanneld's flags.\n\n")
	fmt.Fprintf(w, "usage: weftd [flags]\n\nFlags (-flag and --flag are the same; each may come from "+
		"WEFTD_FLAG, and flannel's from FLANNELD_FLAG):\n\n")
	fs.VisitAll(func(f *flag.Flag) {
		arg, text := flag.UnquoteUsage(f)
		if isBool(f) {
			arg = ""
		}
		fmt.Fprintf(w, "  --%s", f.Name)
		if arg != "" {
			fmt.Fprintf(w, " %s", arg)
		}
		fmt.Fprintf(w, "\n        %s", text)
		if f.DefValue != "" && f.DefValue != "false" {
			fmt.Fprintf(w, " (default %s%s)", f.DefValue, rootlessDefault(f.Name))
		}
		if rowOf(f.Name).own {
			fmt.Fprintf(w, " [weft]")
		}
		fmt.Fprintln(w)
	})
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// Flag is what a reference says of one flag of weftd.
type Flag struct {
	*flag.Flag
	// Own says that flanneld does not have it.
	Own bool
	// Effect is what a reload does with another value; zero for a mode.
	Effect Effect
}

// Flags lists all flags by name.
func Flags() (out []Flag) {
	c := defaults()
	newFlagSet(&c).VisitAll(func(f *flag.Flag) {
		r := rowOf(f.Name)
		out = append(out, Flag{f, r.own, r.effect})
	})
	return out
}
