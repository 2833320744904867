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

// wireGuardModule has wireguard-go's command at its root. weft uses one of its packages.
const wireGuardModule = "golang.zx2c4.com/wireguard"

// find has what c needs and does not name built into dir. A wireguard-go that cannot be built,
// as without Go or outside of weft's module, is no error unless its rung was asked for by
// name: missing says then why there is none.
func (c Config) find(ctx context.Context, dir string) (p programs, missing error, err error) {
	p.weftd = c.Weftd
	if p.weftd == "" && c.NeedsWeftd() {
		if err := build(ctx, dir, "weft/cmd/weftd", "weft/cmd/weft-etcd"); err != nil {
			return p, nil, err
		}
		p.weftd = filepath.Join(dir, "weftd")
	}
	if c.needs(wireguard) {
		p.wireGuard = filepath.Join(dir, "wireguard")
		// The folder of its control socket is a variable for the linker to set: here where it is started.
		err := build(ctx, dir, "-ldflags=-X "+wireGuardModule+"/ipc.socketDirectory=.", wireGuardModule)
		if err != nil {
			missing = fmt.Errorf("rung %s: it is built by Go from the modules of weft, so run it within weft's source: %w", WireGuard, err)
		}
	}
	return p, missing, nil
}

// build compiles commands into dir, as make build does.
func build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-tags", "grpcnotrace", "-o", dir + "/"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
