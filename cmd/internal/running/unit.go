package running

import (
	"os"
	"strings"

	"weft/cmd/internal/options"
)

// UnitFile is where weftd.service reads variables from.
const UnitFile = "/etc/weft/weftd.env"

// UnitVariables returns those that UnitFile sets. Lines that are no variables are left out, as by systemd.
func UnitVariables() ([]string, error) {
	b, err := os.ReadFile(UnitFile)
	if err != nil {
		return nil, err
	}
	out, _ := options.Variables(string(b)) // without what systemd leaves out too
	return out, nil
}

// Mentions says that environ has variables for weftd.
func Mentions(environ []string) bool {
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "FLANNELD_") || strings.HasPrefix(name, "WEFTD_") &&
			name != "WEFTD_CONTROL_SOCKET" {
			return true
		}
	}
	return false
}
