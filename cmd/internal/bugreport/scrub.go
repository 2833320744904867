// Package bugreport gathers what a bug report needs into one archive, without secrets.
package bugreport

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
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
	// words finds a word that names a secret. named are the rules that need one, and always those that do not.
	words         *regexp.Regexp
	named, always []rule
}

// rule replaces what matches by its text with the groups of the match; keep says which matches stay.
type rule struct {
	match *regexp.Regexp
	by    string
	keep  *regexp.Regexp
}

// secretWords are parts of the names of settings that are secrets; spelt wrongly, too, a password is one.
const secretWords = `pas+w[a-z]*|pas+phrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|key[-_]?data|credential|authorization|psk|preshared|cookie`

// newScrubber returns a scrubber that knows these secrets.
func newScrubber(known []string) *scrubber {
	s := &scrubber{words: regexp.MustCompile(`(?i)` + secretWords)}
	for _, k := range known {
		for _, form := range forms(strings.TrimSpace(k)) {
			if len(form) >= minSecret && !slices.Contains(s.known, form) {
				s.known = append(s.known, form)
			}
		}
	}
	// The longest first, since one may be a part of another.
	slices.SortFunc(s.known, func(a, b string) int { return len(b) - len(a) })
	const words = secretWords
	const command = `(?:pre|post)?(?:startup|shutdown|subnet(?:add|remove))command`
	files := regexp.MustCompile(`(?i)^["']?[\w.-]*(file|path|dir)["']?[\s:=\x00]`)
	plain := func(match, by string) rule { return rule{regexp.MustCompile(match), by, nil} }
	s.always = []rule{
		plain(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`, "(private key "+struck+")"),
		plain(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`, struck), // PEM in base64, as in a kubeconfig
		plain(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`, "$1 "+struck),
		plain(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`, struck),                                                            // a JSON web token
		plain(`\b(?:AKIA[0-9A-Z]{16}|gh[a-z]_[A-Za-z0-9]{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|[a-z0-9]{6}\.[a-z0-9]{16})\b`, struck), // of clouds, forges, kubeadm
		plain(`://[^\s"'<>]*@`, "://"+struck+"@"),
		plain(`[^\s"'=,(\[]+:[^\s"',/]+@([A-Za-z0-9\[])`, struck+"@$1"),
		plain(`([?&](?:key|sig|signature|code|auth)=)[^&\s"']+`, "${1}"+struck),
		plain(`((?:^|[\s"'])(?:-u|--(?:proxy-)?user(?:name)?)[ =]["']?[^\s:"']+:)[^\s"']+`, "${1}"+struck),
		// A command may have anything in it; which program it is stays.
		plain(`(?i)("`+command+`"\s*:\s*"\s*[^\s"\\]*)(?:[^"\\]|\\.)*"`, `${1} `+struck+`"`),
		plain(`(?i)(\\"`+command+`\\"\s*:\s*\\"\s*[^\s"\\]*)(?:[^"\\]|\\\\\\.|\\\\|\\[^"\\])*\\"`, `${1} `+struck+`\"`),
		plain(`[A-Za-z0-9+/]{43}=`, struck), // a key of 32 bytes
	}
	s.named = []rule{
		// A setting on a line of its own, in a file of them or a unit, goes to the line's end: passwords have commas and blanks.
		plain(`(?im)^([ \t#]*(?:export[ \t]+|environment=)?["']?[\w.-]*(?:`+words+`)[ \t]*=[ \t]*)\S.*$`, "${1}"+struck),
		plain(`(?im)^([ \t-]*["']?[\w.-]*(?:`+words+`)["']?:[ \t]*[|>][+-]?[ \t]*\n)(?:[ \t]+.*\n?)+`, "${1}  "+struck+"\n"),
		plain(`(?im)^([ \t-]*[\w.-]*(?:`+words+`):[ \t]+)[^\s"'].*$`, "${1}"+struck),
		plain(`(?i)(--?[\w-]*(?:`+words+`)(?:=|(?:[ \t]|\\\r?\n)+))("[^"\n]*"|'[^'\n]*'|[^\s\x00][^\s\x00]*)`, "${1}"+struck),
		{regexp.MustCompile(`(?i)(["']?[\w.-]*(?:` + words + `)[\w.-]*\\?["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*"|\\"[^"]*\\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s,;}&"']+)`), "${1}" + struck, files},
		{regexp.MustCompile(`(?i)(--?[\w-]*(?:` + words + `)[\w-]*[ \t\n\x00]+)([^\s-]\S*)`), "${1}" + struck, files},
	}
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
	return []string{secret, once, quoted(once), url.QueryEscape(secret), url.PathEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret))}
}

// scrub returns text without secrets.
func (s *scrubber) scrub(text []byte) []byte {
	for _, k := range s.known {
		text = bytes.ReplaceAll(text, []byte(k), []byte(struck))
	}
	for _, r := range s.always {
		text = r.strike(text)
	}
	if s.words.Match(text) { // thousands of rules of a firewall have none
		for _, r := range s.named {
			text = r.strike(text)
		}
	}
	return text
}

func (r rule) strike(text []byte) []byte {
	if r.keep == nil {
		return r.match.ReplaceAll(text, []byte(r.by))
	}
	return r.match.ReplaceAllFunc(text, func(m []byte) []byte {
		if r.keep.Match(bytes.TrimLeft(m, "-")) {
			return m
		}
		return r.match.ReplaceAll(m, []byte(r.by))
	})
}
