// Package bugreport gathers what a bug report needs into one archive, without secrets.
package bugreport

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
)

// struck stands where a secret was.
const struck = "xxxxx"

// minSecret is the length from which a known secret is looked for wherever it stands; a shorter one is in every word.
const minSecret = 4

// scrubber strikes secrets out: those that are known, wherever they stand, and what looks like one.
type scrubber struct {
	known []string
	rules []rule
}

// rule replaces what matches by its text with the groups of the match; keep says which matches stay.
type rule struct {
	match *regexp.Regexp
	by    string
	keep  *regexp.Regexp
}

// newScrubber returns a scrubber that knows these secrets.
func newScrubber(known []string) *scrubber {
	s := &scrubber{}
	for _, k := range known {
		if k = strings.TrimSpace(k); len(k) >= minSecret && !slices.Contains(s.known, k) {
			s.known = append(s.known, k)
		}
	}
	// The longest first, since one may be a part of another.
	slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	const words = `password|passwd|passphrase|secret|token|api[-_]?key|private[-_]?key|key[-_]data|credential|authorization|psk|preshared`
	files := regexp.MustCompile(`(?i)^["']?[\w.-]*(file|path|dir)["']?[\s:=\x00]`)
	s.rules = []rule{
		{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`), "(private key " + struck + ")", nil},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`), "$1 " + struck, nil},
		{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`), struck, nil},
		{regexp.MustCompile(`://[^\s"'<>]*@`), "://" + struck + "@", nil},
		{regexp.MustCompile(`[^\s"'=,(\[]+:[^\s"',/]+@([A-Za-z0-9\[])`), struck + "@$1", nil},
		// A setting on a line of its own, in a file of them or a unit, goes to the line's end: passwords have commas and blanks.
		{regexp.MustCompile(`(?im)^([ \t#]*(?:export[ \t]+|environment=)?["']?[\w.-]*(?:` + words + `)[ \t]*=[ \t]*)\S.*$`), "${1}" + struck, nil},
		{regexp.MustCompile(`(?im)^([ \t-]*[\w.-]*(?:` + words + `):[ \t]+)[^\s"'].*$`), "${1}" + struck, nil},
		{regexp.MustCompile(`(?i)(--?[\w-]*(?:` + words + `)(?:=|[ \t]+))("[^"\n]*"|'[^'\n]*'|[^\s\x00-][^\s\x00]*)`), "${1}" + struck, nil},
		{regexp.MustCompile(`(?i)(["']?[\w.-]*(?:` + words + `)[\w.-]*\\?["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|\\"[^"]*\\"|'[^']*'|[^\s,;}&"']+)`), "${1}" + struck, files},
		{regexp.MustCompile(`(?i)(--?[\w-]*(?:` + words + `)[\w-]*[ \t\n\x00]+)([^\s-]\S*)`), "${1}" + struck, files},
		{regexp.MustCompile(`[A-Za-z0-9+/]{43}=`), struck, nil}, // a key of 32 bytes
	}
	return s
}

// scrub returns text without secrets.
func (s *scrubber) scrub(text []byte) []byte {
	for _, k := range s.known {
		text = bytes.ReplaceAll(text, []byte(k), []byte(struck))
	}
	for _, r := range s.rules {
		if r.keep == nil {
			text = r.match.ReplaceAll(text, []byte(r.by))
			continue
		}
		text = r.match.ReplaceAllFunc(text, func(m []byte) []byte {
			if r.keep.Match(bytes.TrimLeft(m, "-")) {
				return m
			}
			return r.match.ReplaceAll(m, []byte(r.by))
		})
	}
	return text
}
