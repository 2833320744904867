package redact

import (
	"bytes"
	"regexp"
)

// rule replaces what matches by a text with the groups of the match; keep says which matches stay.
type rule struct {
	match *regexp.Regexp
	by    string
	keep  *regexp.Regexp
}

// Redactor strikes secrets out of texts of any form. It is ready after New, and may be used by several
// goroutines.
type Redactor struct {
	always, settings []rule // those for every text, and those for names of secrets
	files            *regexp.Regexp
}

// Text strikes out what looks like a secret, or has a name that says so: in JSON, URLs, settings and command
// lines.
func (r *Redactor) Text(text []byte) []byte {
	for _, one := range r.always {
		text = one.strike(text)
	}
	text = JSON(text, func(name, _ string) (string, bool) {
		return Struck, Name(name) && !r.files.MatchString(name)
	})
	if named.Match(text) { // thousands of rules of a firewall have none
		for _, one := range r.settings {
			text = one.strike(text)
		}
	}
	return text
}

// New returns a Redactor. It takes a millisecond, which a program does not need to spend that shows no text.
func New() *Redactor {
	const words, struck = secretName, Struck
	const command = `(?:pre|post)?(?:startup|shutdown|subnet(?:add|remove))command`
	plain := func(match, by string) rule { return rule{regexp.MustCompile(match), by, nil} }
	always := []rule{
		plain(
			`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\z)`, "(private key "+struck+")"),
		plain(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]*`, struck), // PEM in base64, as in a kubeconfig
		plain(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}`, "$1 "+struck),
		// a JSON web token
		plain(`eyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*`, struck),
		// of clouds, forges, kubeadm
		plain(
			`\b(?:AKIA[0-9A-Z]{16}|gh[a-z]_[A-Za-z0-9]{20,}|glpat-[\w-]{20,}|xox[a-z]-[\w-]{10,}|[a-z0-9]{6}\.[a-z0-9]{16})\b`, struck),
		plain(`(:(?:\\?/){2})[^\s"<>]*@`, "${1}"+struck+"@"),
		plain(`[^\s"'=,(\[]+:[^\s"',/]+@([A-Za-z0-9\[])`, struck+"@$1"),
		// The parameters of a URL, whose names may be escaped; and a part of a URL that begins with one.
		plain(`(:(?:\\?/){2}[^\s"<>?#]*[?#])[^\s"<>]*[^\s"<>\\]`, "${1}"+struck),
		plain(`(\?)[^\s"<>=]+=[^\s"<>]*[^\s"<>\\]`, "${1}"+struck),
		plain(`(&(?:amp;)?(?:key|code)=)[^&\s"']+`, "${1}"+struck),
		plain(`((?:^|[\s"'])(?:-u|--(?:proxy-)?user(?:name)?)[ =]["']?[^\s:"']+:)[^\s"']+`, "${1}"+struck),
		// A command may have anything in it; which program it is stays.
		plain(`(?i)("`+command+`"\s*:\s*"\s*[^\s"\\]*)(?:[^"\\]|\\.)*"`, `${1} `+struck+`"`),
		plain(`(?i)(\\"`+command+`\\"\s*:\s*\\"\s*[^\s"\\]*)(?:[^"\\]|\\\\\\.|\\\\|\\[^"\\])*\\"`,
			`${1} `+struck+`\"`),
		plain(`[A-Za-z0-9+/]{43}=`, struck), // a key of 32 bytes
	}
	// Names of files stay, and so does text that is struck out already.
	kept := regexp.MustCompile(`(?i)^["']?[\w.-]*(file|path|dir)["']?[\s:=\x00]|["'\\\s:=]` + struck +
		`["'\\]*$|[\s:=](?:null|true|false)$`)
	settings := []rule{
		// A setting on a line of its own, in a file of them or a unit, goes to the line's end: passwords have
		// commas and blanks.
		{regexp.MustCompile(`(?im)^([ \t#]*(?:export[ \t]+|environment=)?["']?` + words + `[ \t]*=[ \t]*)\S.*$`),
			"${1}" + struck, regexp.MustCompile(
				`(?i)^[ \t#]*(?:export[ \t]+|environment=)?["']?[\w.-]*(file|path|dir)[ \t]*=`)},
		plain(`(?im)^([ \t-]*["']?`+words+`["']?:[ \t]*[|>][+-]?[ \t]*\n)(?:[ \t]+.*\n?)+`, "${1}  "+struck+"\n"),
		{regexp.MustCompile(`(?im)^([ \t-]*` + words + `:[ \t]+)[^\s"'].*$`), "${1}" + struck, kept},
		{regexp.MustCompile(`(?i)(--?` + words +
			`(?:=|(?:[ \t]|\\\r?\n)+))("[^"\n]*"|'[^'\n]*'|[^\s\x00][^\s\x00]*)`), "${1}" + struck, kept},
		{regexp.MustCompile(`(?i)(["']?` + words +
			`\\?["']?\s*[:=](?:\s|\\+[nrt])*)("(?:[^"\\]|\\.)+"|\\"[^"]+\\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s,;}&"']+)`), "${1}" + struck, kept},
		{regexp.MustCompile(`(?i)(--?` + words + `[ \t\n\x00]+)([^\s-]\S*)`), "${1}" + struck, kept},
	}
	return &Redactor{always: always, settings: settings, files: regexp.MustCompile(`(?i)(file|path|dir)$`)}
}

func (r rule) strike(text []byte) []byte {
	if r.keep == nil {
		return r.match.ReplaceAll(text, []byte(r.by))
	}
	return r.match.ReplaceAllFunc(text, func(m []byte) []byte {
		if r.keep.Match(bytes.TrimLeft(m, "- \t#")) {
			return m
		}
		return r.match.ReplaceAll(m, []byte(r.by))
	})
}
