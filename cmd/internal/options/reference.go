package options

import "flag"

// Flag is what a reference says of one flag of weftd.
type Flag struct {
	// Name is without dashes, and Section the title of the part of weftd.env that it is in; "" for a mode.
	Name, Section string
	// Default is as the flag prints it, and Usage without the quotes that mark the value's name.
	Default, Usage string
	// Own says that flanneld does not have it.
	Own bool
	// Effect is what a reload does with another value; zero for a mode.
	Effect Effect
}

// Flags lists all flags, in the order of weftd.env.
func Flags() []Flag {
	c := defaults()
	fs := newFlagSet(&c)
	var out []Flag
	for _, s := range sections(&c) {
		for _, r := range s.rows {
			f := fs.Lookup(r.name)
			_, usage := flag.UnquoteUsage(f)
			out = append(out, Flag{
				Name: r.name, Section: s.title, Default: f.DefValue, Usage: usage, Own: r.own, Effect: r.effect,
			})
		}
	}
	return out
}
