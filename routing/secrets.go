package routing

import (
	"bytes"
	"slices"
	"strings"

	"weft/lease"
	"weft/lease/redact"
)

// hiddenKey stands where a secret of a network config was. It has a key's form, so that what reads the text goes on as before, and
// says what it is.
const hiddenKey = "hiddenhiddenhiddenhiddenhiddenhiddenhidden4="

// WithoutSecrets returns the text of a network config with its secrets hidden, for logs, statuses and reports. The text need not be valid.
func WithoutSecrets(config []byte) []byte {
	var secrets []string
	for _, t := range BuiltIn() {
		for _, k := range t.Settings(lease.NetworkConfig{}).Keys() {
			if k.Secret {
				secrets = append(secrets, k.Name)
			}
		}
	}
	return redact.JSON(config, func(name, value string) (string, bool) {
		switch {
		case slices.ContainsFunc(secrets, func(s string) bool { return strings.EqualFold(name, s) }):
			return hiddenKey, true
		case redact.Name(name):
			return redact.Struck, true
		case strings.Contains(value, " "), strings.Contains(value, "://"): // a command, which may have anything in it
			shown := string(redact.New().Text([]byte(value)))
			return shown, shown != value
		}
		return "", false
	})
}

// ShowsAll reports whether the text of a network config has no secret, and none that WithoutSecrets has hidden, so that it can be printed for somebody to write it back.
func ShowsAll(config []byte) bool {
	for _, hidden := range []string{hiddenKey, redact.Struck} {
		if bytes.Contains(config, []byte(hidden)) {
			return false
		}
	}
	return len(config) > 0 && bytes.Equal(config, WithoutSecrets(config))
}
