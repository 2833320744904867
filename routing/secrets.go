package routing

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"weft/lease"
)

// hiddenKey stands where a secret of a network config was. It has a key's form, so that what reads the text goes on as before, and
// says what it is.
const hiddenKey = "hiddenhiddenhiddenhiddenhiddenhiddenhidden4="

// WithoutSecrets returns the text of a network config with its secrets hidden, for logs, statuses and reports. The text need not be valid.
func WithoutSecrets(config []byte) []byte {
	for _, t := range BuiltIn() {
		for _, k := range t.Settings(lease.NetworkConfig{}).Keys() {
			if k.Secret {
				value := regexp.MustCompile(`(?i)("` + spelt(k.Name) + `"\s*:\s*)"(\\.|[^"\\])+("|$)`)
				config = value.ReplaceAll(config, []byte(`${1}"`+hiddenKey+`${3}`))
			}
		}
	}
	return config
}

// spelt matches the name of a key as encoding/json takes it: in either case, also by letters that only fold to the same, and each may be escaped.
func spelt(name string) string {
	var pattern strings.Builder
	for _, letter := range name {
		fmt.Fprintf(&pattern, `(?:%c`, letter) // (?i) has the others
		for r := unicode.SimpleFold(letter); ; r = unicode.SimpleFold(r) {
			fmt.Fprintf(&pattern, `|\\u%04x`, r)
			if r == letter {
				break
			}
		}
		pattern.WriteByte(')')
	}
	return pattern.String()
}
