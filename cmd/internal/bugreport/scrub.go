// Package bugreport gathers what a bug report needs into one archive, without secrets.
package bugreport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"

	"weft/cmd/internal/running"
	"weft/lease/redact"
)

// struck stands where a secret was.
const struck = redact.Struck

// minSecret is the length from which a known secret is looked for wherever it stands; a shorter one is in
// every word.
const minSecret = 4

// scrubber strikes secrets out: those that are known, wherever they stand, and what looks like one.
type scrubber struct {
	known  []string
	redact *redact.Redactor
}

// newScrubber returns a scrubber that knows these secrets.
func newScrubber(known []string) *scrubber {
	s := &scrubber{redact: redact.New()}
	for _, k := range known {
		for _, form := range forms(strings.TrimSpace(k)) {
			if len(form) >= minSecret && !slices.Contains(s.known, form) {
				s.known = append(s.known, form)
			}
		}
	}
	// The longest first, since one may be a part of another.
	slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	return s
}

// forms returns a secret as it is written in logs, documents and URLs, and in documents within those.
func forms(secret string) []string {
	if secret == "" {
		return nil
	}
	quoted := func(text string) string {
		b, err := json.Marshal(text)
		if err != nil {
			return text
		}
		return string(b[1 : len(b)-1])
	}
	once := quoted(secret)
	return []string{secret, once, quoted(once), url.QueryEscape(secret), url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret))}
}

// scrub returns text without secrets.
func (s *scrubber) scrub(text []byte) []byte {
	for _, k := range s.known {
		text = bytes.ReplaceAll(text, []byte(k), []byte(struck))
	}
	return s.redact.Text(text)
}

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
