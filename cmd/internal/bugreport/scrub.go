// Package bugreport gathers what a bug report needs into one archive, without secrets.
package bugreport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

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
