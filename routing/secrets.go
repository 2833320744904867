package routing

import (
	"regexp"

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
				value := regexp.MustCompile(`(?i)("` + k.Name + `"\s*:\s*)"(\\.|[^"\\])+("|$)`)
				config = value.ReplaceAll(config, []byte(`${1}"`+hiddenKey+`${3}`))
			}
		}
	}
	return config
}
