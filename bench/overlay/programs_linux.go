package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs are the daemons that rungs run.
type programs struct{ weftd, wireGuard string }

// wireGuardModule is the module with wireguard-go's command at its root. It is in our go.mod, since weft uses
// one of its packages.
const wireGuardModule = "golang.zx2c4.com/wireguard"

// find returns the programs that c needs, and builds into dir those that c does not name. missing, if
// not nil, says why wireguard-go could not be built, as without Go or outside of weft's module. The
// caller decides whether that matters: it does if the rung was asked for by name.
func (c Config) find(ctx context.Context, dir string) (p programs, missing error, err error) {
	p.weftd = c.Weftd
	if p.weftd == "" && c.NeedsWeftd() {
		commands := []string{"weft/cmd/weftd", "weft/cmd/weft-etcd"}
		if c.NeedsWeft() {
			commands = append(commands, "weft/cmd/weft")
		}
		if err := build(ctx, dir, commands...); err != nil {
			return p, nil, err
		}
		p.weftd = filepath.Join(dir, "weftd")
	}
	if c.needs(func(r Rung) bool { return r.Name == WireGuard }) {
		p.wireGuard = filepath.Join(dir, "wireguard")
		// A variable that the linker can set names the folder of its control socket: here the folder in which it is
		// started.
		err := build(ctx, dir, "-ldflags=-X "+wireGuardModule+"/ipc.socketDirectory=.", wireGuardModule)
		if err != nil {
			missing = fmt.Errorf("it is built by Go from the modules of weft, so run it within weft's source: %w", err)
		}
	}
	return p, missing, nil
}

// build compiles commands into dir, as make build does.
func build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"build", "-trimpath", "-tags", "grpcnotrace", "-o", dir + "/"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
