// Package redact strikes secrets out of what others may read: URLs, network configs, logs and bug reports.
package redact

import (
	"regexp"
	"strings"
)

// Struck stands where a secret was.
const Struck = "xxxxx"

// These are parts of a setting's name that make it a secret. A short one counts as a word of its own only, as
// in db_pw, dbPw and pwHash, since others have its letters too. A misspelt password is still a password.
const (
	longWords = `pas+w[a-z]*|pas+(?:phrase|code|key)|secret|token|signature|credential|authorization|psk|pre[-_]?shared|cookie|` +
		`(?:api|access|private|account|shared|signing|encryption|session|auth|master)[-_]?key|key[-_]?data`
	shortWords  = `pw|pwd|pass|sig|auth|creds?|jwt|sas|otp|bearer`
	capitalised = `Pw|PW|Pwd|PWD|Pass|Sig|Auth|Creds?|Jwt|JWT|Sas|SAS|Otp|OTP|Bearer`
	secretName  = `(?:[\w.-]*(?:` + longWords + `)[\w.-]*` +
		`|\b(?:[\w.-]*[_.-])?(?:` + shortWords + `)\d*(?:[_.-][\w.-]*)?\b` +
		`|(?-i:[\w.-]*[a-z0-9](?:` + capitalised + `)(?:[A-Z0-9_.-][\w.-]*)?\b)` +
		`|(?-i:\b(?:` + shortWords + `)[A-Z][\w.-]*))`
)

var named = regexp.MustCompile(`(?i)` + secretName)

// Name reports whether a setting, variable or member of that name holds a secret.
func Name(name string) bool {
	// ſ and the Kelvin sign are letters too
	return named.MatchString(strings.ToLower(strings.ToUpper(name))) || named.MatchString(name)
}

// URL strikes user and password, and all parameters, out of a URL or of a host:port that begins with a user,
// however malformed it is.
func URL(url string) string {
	scheme, rest, found := strings.Cut(url, "://")
	if prefix := scheme + "://"; found && !strings.ContainsAny(scheme, ":@/?#;") {
		return prefix + authority(rest)
	}
	return authority(url)
}

func authority(rest string) string {
	at, parameters := strings.LastIndexByte(rest, '@'), strings.IndexAny(rest, "?#;")
	switch {
	case at >= 0 && parameters >= 0 && parameters < at: // of the password, or a parameter with an @
		return Struck
	case at >= 0:
		rest = Struck + rest[at:]
	}
	if i := strings.IndexAny(rest, "?#;"); i >= 0 && i+1 < len(rest) {
		rest = rest[:i+1] + Struck
	}
	return rest
}
