package running

import (
	"os"
	"strings"
)

// UnitFile is where weftd.service reads variables from.
const UnitFile = "/etc/weft/weftd.env"

// UnitVariables returns those that UnitFile sets.
func UnitVariables() ([]string, error) {
	b, err := os.ReadFile(UnitFile)
	if err != nil {
		return nil, err
	}
	return variables(string(b)), nil
}

// Mentions says that environ has variables for weftd.
func Mentions(environ []string) bool {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "FLANNELD_") || strings.HasPrefix(name, "WEFTD_") && name != "WEFTD_CONTROL_SOCKET" {
			return true
		}
	}
	return false
}

// variables reads an environment file of systemd: NAME=value lines, with comments and quotes.
func variables(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		out = append(out, name+"="+value)
	}
	return out
}
