package hostrules

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tools are the programs of one flavour of iptables, for one family.
type tools struct {
	save, restore string // paths
	// options says whether this version has -w and --random-fully, which came with 1.6.2.
	options bool
}

// lockWait bounds, in seconds, how long iptables waits for somebody else's lock; toolTime
// bounds a whole run of it.
const (
	lockWait = "5"
	toolTime = 20 * time.Second
)

// errNoTools is for a host without the programs that a flavour needs.
var errNoTools = errors.New("the programs of iptables are missing: install iptables, or set EnableNFTables " +
	"in the network config, which needs none")

// findTools looks for iptables-nft-save or iptables-legacy-save and their like, or for
// iptables-save if that is of this flavour.
func findTools(ctx context.Context, k kind, ipv6 bool) (tools, error) {
	family, flavour := "iptables", "-nft"
	if ipv6 {
		family = "ip6tables"
	}
	if k == kindIptablesLegacy {
		flavour = "-legacy"
	}
	for _, stem := range []string{family + flavour, family} {
		main, save, restore := lookPath(stem), lookPath(stem+"-save"), lookPath(stem+"-restore")
		if main == "" || save == "" || restore == "" {
			continue
		}
		out, err := run(ctx, "", main, "--version")
		if err != nil {
			return tools{}, err
		}
		v := parseVersion(out)
		if v.kind != k {
			continue
		}
		return tools{save, restore, v.options()}, nil
	}
	return tools{}, fmt.Errorf("%s: %w", k, errNoTools)
}

// version is what iptables says of itself.
type version struct {
	kind   kind
	number [3]int
}

// options is as in tools.
func (v version) options() bool { return slices.Compare(v.number[:], []int{1, 6, 2}) >= 0 }

// parseVersion reads "iptables v1.8.9 (nf_tables)"; versions before 1.8 name no flavour.
func parseVersion(text string) version {
	v := version{kind: kindIptablesLegacy}
	if strings.Contains(text, "nf_tables") {
		v.kind = kindIptablesNFT
	}
	m := regexp.MustCompile(`v(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?`).FindStringSubmatch(text)
	for i := range v.number {
		if len(m) > i+1 {
			v.number[i], _ = strconv.Atoi(m[i+1]) // digits, or "" for none
		}
	}
	return v
}

// lookPath is exec.LookPath that also knows where iptables is when PATH is that of a user.
func lookPath(name string) string {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/local/sbin", "/usr/sbin", "/sbin")
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && filepath.IsAbs(p) {
			return p
		}
	}
	return ""
}

// run starts a program with stdin and returns what it prints. There is no shell.
func run(ctx context.Context, stdin string, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err,
			firstLine(stderr.String()))
	}
	return stdout.String(), nil
}

// firstLine shortens a program's error message so that it fits a log line.
func firstLine(text string) string {
	const most = 300
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line[:min(len(line), most)]
		}
	}
	return "it says nothing"
}
