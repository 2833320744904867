package bugreport

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// process is what is known of the running weftd.
type process struct {
	pid           int
	args, environ []string
}

// readProcess reads the command line and the environment of a process; of pid 0, nothing.
func readProcess(pid int) (p process) {
	if p.pid = pid; pid <= 0 {
		return p
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	words := func(file string) []string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || len(b) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	}
	p.args, p.environ = words("cmdline"), words("environ")
	return p
}

// secrets returns the secrets that p was given, and those of environ, by the names of flags and variables.
func (p process) secrets(environ []string) (out []string) {
	secret := regexp.MustCompile(`(?i)(password|passwd|secret|token|credential|private_?key)`)
	take := func(name, value string) {
		switch {
		case !secret.MatchString(name) && strings.Contains(value, "@"):
			for _, one := range strings.Split(value, ",") {
				if u, err := url.Parse(one); err == nil && u.User != nil {
					password, _ := u.User.Password()
					out = append(out, password, url.QueryEscape(password))
				}
			}
		case !secret.MatchString(name):
		case strings.HasSuffix(strings.ToLower(name), "file"):
			if b, err := os.ReadFile(value); err == nil && len(b) < 64<<10 {
				out = append(out, strings.TrimSpace(string(b)))
				first, _, _ := strings.Cut(string(b), "\n")
				out = append(out, first)
			}
		default:
			out = append(out, value)
		}
	}
	for i, a := range p.args {
		name, value, inOne := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if !inOne && strings.HasPrefix(a, "-") && i+1 < len(p.args) {
			value = p.args[i+1]
		}
		take(name, value)
	}
	for _, l := range [][]string{p.environ, environ} {
		for _, v := range l {
			name, value, _ := strings.Cut(v, "=")
			take(name, value)
		}
	}
	return out
}

// ours returns the variables that weftd reads.
func (p process) ours() (out []string) {
	for _, v := range p.environ {
		for _, begins := range []string{"WEFTD_", "FLANNELD_", "NODE_NAME=", "POD_NAME", "KUBERNETES_SERVICE_", "GOMAXPROCS=", "GOGC=", "GOMEMLIMIT=", "GODEBUG="} {
			if strings.HasPrefix(v, begins) {
				out = append(out, v)
				break
			}
		}
	}
	return out
}
