package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"weft/test/lab"
	"weft/test/lab/probe"
)

// bed is a rung's lab.
type bed struct {
	rung     Rung
	lab      *lab.Lab
	from, to probe.Endpoint
}

// raise builds every rung's lab. The caller closes what it returns, also with an error.
func raise(ctx context.Context, c Config, weftd string, say func(string)) (beds []*bed, err error) {
	for _, r := range c.rungs() {
		spec := lab.Spec{
			Name: r.Name, Nodes: 2, PodsPerNode: 1, Direct: true, Driver: r.Driver, WeftdPath: weftd,
			Progress: func(line string) { say(r.Name + ": " + line) },
		}
		if r.Driver == lab.Weftd {
			spec.NetworkConfig = json.RawMessage(fmt.Sprintf(`{"Network":"10.42.0.0/16","Backend":{"Type":"udp","Path":%q}}`, r.Path))
		}
		l, err := lab.Up(ctx, spec)
		if err != nil {
			return beds, fmt.Errorf("rung %s: %w%s", r.Name, err, logOf(err))
		}
		b := &bed{rung: r, lab: l}
		pods := l.Pods()
		b.from, b.to = pods[0].Endpoint(4), pods[1].Endpoint(4)
		beds = append(beds, b)
		if err := lab.Reach(ctx, b.from, b.to.Addr); err != nil {
			return beds, fmt.Errorf("rung %s: %w", r.Name, err)
		}
	}
	return beds, nil
}

// logOf is the end of the log that belongs to a node's fault.
func logOf(err error) string {
	var fault *lab.NodeError
	if errors.As(err, &fault) {
		return "\n" + string(fault.LogTail)
	}
	return ""
}

// pids are the rung's daemons.
func (b *bed) pids() (l []int) {
	for _, n := range b.lab.Nodes() {
		if pid := n.Daemon.PID(); pid > 0 {
			l = append(l, pid)
		}
	}
	return l
}

// daemons is nil while the daemons that should run do.
func (b *bed) daemons() error {
	if b.rung.Driver != lab.Weftd || len(b.pids()) == len(b.lab.Nodes()) {
		return nil
	}
	err := fmt.Errorf("rung %s: a weftd ended", b.rung.Name)
	for _, n := range b.lab.Nodes() {
		err = errors.Join(err, fmt.Errorf("%s: %s", n.Name, n.Daemon.LogTail(20)))
	}
	return err
}

// build compiles weftd into dir, as make build does.
func build(ctx context.Context, dir string) (string, error) {
	to := filepath.Join(dir, "weftd")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", to, "weft/cmd/weftd")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return to, nil
}
