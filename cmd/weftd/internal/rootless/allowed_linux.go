package rootless

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	accounts "os/user"
	"strconv"
	"strings"
)

// Outside are what a host has that weftd itself has no need of, or cannot look at without root, and that its
// user may need: subordinate ids and a firewall. port is the overlay's, 0 if that is not known.
func Outside(port int) []string {
	name, uid := "", strconv.Itoa(os.Getuid())
	if u, err := accounts.LookupId(uid); err == nil {
		name = u.Username
	}
	_, missing := exec.LookPath("newuidmap")
	return []string{subordinates(os.DirFS("/"), name, uid, missing == nil), firewalls(os.DirFS("/"), port)}
}

// enoughIDs is how many subordinate ids a container has that has the usual users.
const enoughIDs = 65536

// subordinates says whether the user has subordinate ids, and newuidmap, which takes them.
func subordinates(host fs.FS, name, uid string, newuidmap bool) string {
	who := name
	if who == "" {
		who = uid
	}
	var lacking []string
	for _, file := range []string{"etc/subuid", "etc/subgid"} {
		text, _ := fs.ReadFile(host, file) // one that is not there names nobody
		most := 0
		for line := range strings.Lines(string(text)) {
			words := strings.Split(strings.TrimSpace(line), ":")
			if len(words) != 3 || words[0] != uid && (name == "" || words[0] != name) {
				continue
			}
			if n, err := strconv.Atoi(words[2]); err == nil {
				most += n
			}
		}
		if most < enoughIDs {
			lacking = append(lacking, fmt.Sprintf("/%s has %d for %s", file, most, who))
		}
	}
	const alone = "; weftd, unshare and pasta have no need of them"
	switch {
	case len(lacking) > 0:
		return fmt.Sprintf("subordinate ids: %s, and podman and RootlessKit need %d: as root: usermod "+
			"--add-subuids 100000-165535 --add-subgids 100000-165535 %s, with numbers that no other line has%s",
			strings.Join(lacking, ", "), enoughIDs, who, alone)
	case !newuidmap:
		return "subordinate ids: there is no newuidmap, by which podman and RootlessKit take them: apt-get " +
			"install uidmap" + alone
	}
	return "subordinate ids: enough for podman and RootlessKit"
}

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
