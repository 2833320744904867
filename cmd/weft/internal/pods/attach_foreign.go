package pods

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/prometheus/procfs"

	"weft/cmd/weft/internal/cli"
)

// foreign is a namespace that the kernel does not let this user look at.
type foreign struct {
	path  string
	pid   int    // 0 if a path was named
	owner int    // user of the process, or of the file; -1 if that is not known
	name  string // the owner's name, if there is one
	own   int    // this user
}

func readForeign(pid int, path string) foreign {
	f := foreign{path: path, pid: pid, owner: -1, own: os.Geteuid()}
	if p, err := procfs.NewProc(pid); err == nil { // there is no process 0
		if s, err := p.NewStatus(); err == nil {
			f.owner = int(s.UIDs[1])
		}
	}
	if f.owner >= 0 {
		if u, err := user.LookupId(strconv.Itoa(f.owner)); err == nil {
			f.name = u.Username
		}
	}
	return f
}

// err says whose it is, and what to do.
func (f foreign) err() error {
	switch {
	case f.pid == 0:
		return fmt.Errorf("%s may not be looked at by user %d: name a namespace of this user's, or run this as "+
			"the user whose it is", f.path, f.own)
	case f.owner < 0:
		return fmt.Errorf("process %d may not be looked at by user %d: name one of this user's own", f.pid, f.own)
	case f.owner == f.own:
		return fmt.Errorf("process %d is this user's, but the kernel does not let its namespace be looked at: it "+
			"has executed a set-user-ID program or one that "+
			"cannot be read, or a security module forbids it: name another process of the same pod (lsns --type net "+
			"lists them)", f.pid)
	case f.owner == 0:
		return fmt.Errorf("process %d is root's: run this as root, for root's weftd, or name one of your own",
			f.pid)
	}
	who := fmt.Sprintf("user %d's", f.owner)
	if f.name != "" {
		who = fmt.Sprintf("%s's (user %d)", cli.Clean(f.name), f.owner)
	}
	return fmt.Errorf("process %d is %s, and so is its namespace: run this as that user, for a weftd of that "+
		"user's", f.pid, who)
}
