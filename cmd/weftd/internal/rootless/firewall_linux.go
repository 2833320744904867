package rootless

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Firewall says which front end of this host's firewall is on. weftd without root cannot look at the rules.
// port is the overlay's, 0 if that is not known.
func Firewall(port int) string { return firewalls(os.DirFS("/"), port) }

// firewalls says which front end of the host's firewall is on. The rules themselves are for root to read.
func firewalls(host fs.FS, port int) string {
	what := "the overlay's UDP port"
	number := "PORT"
	if port != 0 {
		number = strconv.Itoa(port)
		what = "UDP port " + number
	}
	on := func(file, word string) bool {
		text, err := fs.ReadFile(host, file)
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(text)) {
			if strings.EqualFold(strings.TrimSpace(line), word) {
				return true
			}
		}
		return false
	}
	var by []string
	if on("etc/ufw/ufw.conf", "ENABLED=yes") {
		by = append(by, "ufw is enabled, so that it needs, as root: ufw allow "+number+"/udp")
	}
	if _, err := fs.Stat(host, "run/firewalld"); err == nil {
		by = append(by, "firewalld runs, so that it needs, as root: firewall-cmd --permanent --add-port="+number+
			"/udp && firewall-cmd --reload")
	}
	if len(by) > 0 {
		return "firewall: " + strings.Join(by, "; ")
	}
	return fmt.Sprintf("firewall: neither ufw nor firewalld is on; other rules of this host, and what lies "+
		"between the hosts, nobody sees without root. %s has to be let in from the other hosts: once weftd runs, "+
		"weft ping PEER says whether it is", what)
}
