package bugreport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"weft/cmd/internal/options"
	"weft/cmd/internal/running"
)

// ours reports which variables weftd, or Go's runtime, reads. Any other in the same file is somebody else's,
// and may be a secret whatever its name is; so may one of ours be that is spelt wrongly.
func ours() func(name string) bool {
	cfg, _ := options.Parse(nil, nil) // for the names of the flags
	known := map[string]bool{"NODE_NAME": true, "POD_NAME": true, "POD_NAMESPACE": true,
		"WIREGUARD_KEY_FILE": true, "GOMAXPROCS": true, "GOGC": true, "GOMEMLIMIT": true, "GODEBUG": true,
		"GOTRACEBACK": true}
	for _, s := range cfg.Settings {
		name := strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
		known["WEFTD_"+name], known["FLANNELD_"+name] = true, true
	}
	return func(name string) bool { return known[name] || strings.HasPrefix(name, "KUBERNETES_SERVICE_") }
}

// knownVariables returns those of environ that are ours, and the names of all others that begin as ours do.
func knownVariables(environ []string) (out []string) {
	is := ours()
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		switch {
		case is(name):
			out = append(out, v)
		case strings.HasPrefix(name, "WEFTD_"), strings.HasPrefix(name, "FLANNELD_"):
			out = append(out, name+"="+struck+" (no variable of weftd)")
		}
	}
	return out
}

// onlyOurs leaves of a file of variables those that are ours, as weftd reads them, and the names of those
// that begin as ours do.
func onlyOurs(text []byte) []byte {
	all, err := options.Variables(string(text))
	for i, v := range all {
		name, value, _ := strings.Cut(v, "=")
		if strings.HasSuffix(value, `\`) || strings.TrimLeft(value, `"'`) != value {
			all[i] = name + "=" + struck // it goes on in the next line
		}
	}
	known := knownVariables(all)
	out := strings.Join(append(known, ""), "\n")
	if n := len(all) - len(known); n > 0 || err != nil {
		out += fmt.Sprintf("(left out: %d variables of others)\n", n)
	}
	if err != nil {
		out += err.Error() + "\n"
	}
	return []byte(out)
}

// onlyOurEnvironment strikes out, in units of systemd, comments and lines Environment= that set a variable of
// somebody else.
func onlyOurEnvironment(text []byte) []byte {
	is := ours()
	setting := regexp.MustCompile(`(?i)^\s*environment\s*=`)
	assigned := regexp.MustCompile(`(?:^|[\s"'])([A-Za-z_][A-Za-z0-9_]*)=`)
	file := regexp.MustCompile(`^# /\S+$`)
	// in a command, as by env
	given := regexp.MustCompile(
		`(?:"[A-Z][A-Z0-9_]*=[^"]*"|'[A-Z][A-Z0-9_]*=[^']*'|\s[A-Z][A-Z0-9_]*=(?:"[^"]*"|'[^']*'|\S*))`)
	var out bytes.Buffer
	goesOn, environment := false, false
	for line := range strings.Lines(string(text)) {
		kept := line
		if !goesOn {
			environment = setting.MatchString(line)
		}
		switch trimmed := strings.TrimSpace(line); {
		case !goesOn && file.MatchString(trimmed): // systemctl's name of the file
		case strings.HasPrefix(trimmed, "#"), strings.HasPrefix(trimmed, ";"): // a setting goes on behind it
			continue
		case environment:
			values := setting.ReplaceAllString(line, "")
			names := assigned.FindAllStringSubmatch(values, -1)
			strange := len(names) == 0
			for _, n := range names {
				strange = strange || !is(n[1])
			}
			if strange {
				kept = "Environment=" + struck + "\n"
			}
		default:
			kept = given.ReplaceAllStringFunc(line, func(word string) string {
				name, _, _ := strings.Cut(word, "=")
				if is(strings.TrimLeft(name, "\"' \t")) && strings.Count(word, "=") == 1 {
					return word
				}
				end := ""
				if word[0] == '"' || word[0] == '\'' {
					end = word[:1]
				}
				return name + "=" + struck + end
			})
		}
		goesOn = strings.HasSuffix(strings.TrimSpace(line), `\`)
		out.WriteString(kept)
	}
	return out.Bytes()
}

// then returns p, of whose text change makes another one before it is struck out.
func (p part) then(change func([]byte) []byte) part {
	read := p.read
	p.read = func(ctx context.Context) ([]byte, error) {
		text, err := read(ctx)
		return change(text), err
	}
	return p
}

// commandLine has what weftd was started with.
func commandLine(r Request) part {
	return part{"weftd.txt", "command line and variables of weftd", usual,
		func(context.Context) ([]byte, error) {
			if len(r.Process.Args) == 0 {
				return nil, errors.New("no weftd is known whose command line could be read")
			}
			return fmt.Appendf(nil, "pid %d\n\n%s\n\n%s\n", r.Process.PID, strings.Join(r.Process.Args, "\n"),
				strings.Join(knownVariables(r.Process.Environ), "\n")), nil
		}}
}

// environmentFile has the settings that systemd gives to weftd.
func environmentFile() part {
	return part{"weftd.env", "settings of weftd in " + running.UnitFile, usual,
		func(context.Context) ([]byte, error) {
			b, err := readRegular(running.UnitFile)
			if errors.Is(err, fs.ErrNotExist) {
				return []byte("there is none\n"), nil
			}
			return onlyOurs(b), err
		}}
}

// networkFiles has the files that weftd reads its network config from, if that is not in etcd, and writes its
// subnet to.
func networkFiles(p running.Process) part {
	cfg, _ := p.Settings() // those of weftd as far as it could be read, else the usual ones
	paths := []string{p.Path(cfg.SubnetFile)}
	if cfg.NetConfigGiven || cfg.Kube.On {
		paths = append(paths, p.Path(cfg.NetConfigPath))
	} else if len(p.Args) == 0 {
		paths = append(paths, cfg.NetConfigPath)
	}
	return files("config.txt", "the subnet file, and the network configuration if it is a file", paths...)
}
