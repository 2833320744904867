package bugreport

import (
	"net/url"
	"os"
	"strings"

	"weft/cmd/internal/running"
	"weft/lease/redact"
)

// secrets returns the secrets that p was given, and those of environ, by the names of flags and variables.
func secrets(p running.Process, environ []string) (out []string) {
	take := func(name, value string) {
		switch {
		case !redact.Name(name) && strings.Contains(value, "@"):
			for _, one := range strings.Split(value, ",") {
				if u, err := url.Parse(one); err == nil && u.User != nil {
					password, _ := u.User.Password()
					out = append(out, password, url.QueryEscape(password))
				}
			}
		case !redact.Name(name):
		case strings.HasSuffix(strings.ToLower(name), "file"):
			if b, err := os.ReadFile(p.Path(value)); err == nil && len(b) < 64<<10 {
				out = append(out, strings.TrimSpace(string(b)))
				first, _, _ := strings.Cut(string(b), "\n")
				out = append(out, first)
			}
		default:
			out = append(out, value)
		}
	}
	for i, a := range p.Args {
		name, value, inOne := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !inOne && strings.HasPrefix(a, "-") && i+1 < len(p.Args) {
			value = p.Args[i+1]
		}
		take(name, value)
	}
	for _, l := range [][]string{p.Environ, environ} {
		for _, v := range l {
			name, value, _ := strings.Cut(v, "=")
			take(name, value)
		}
	}
	return out
}
