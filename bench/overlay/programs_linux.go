package overlay

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"weft/test/lab"
)

// programs are the daemons that rungs run.
type programs struct{ weftd, wireGuard string }

// wireGuardModule is the module with wireguard-go's command at its root. It is in our go.mod, since weft uses
// one of its packages.
const wireGuardModule = "golang.zx2c4.com/wireguard"

// find returns the programs that c needs. It builds wireguard-go into dir; missing says why that cannot be
// done, as without Go or outside of weft's module. The caller decides whether that matters: it does if the
// rung was asked for by name.
func (c Config) find(ctx context.Context, dir string) (p programs, missing error, err error) {
	p.weftd = c.Weftd
	if p.weftd == "" && c.needs(byWeftd) {
		if p.weftd, err = lab.FindWeftd(); err != nil {
			return p, nil, err
		}
	}
	if !c.needs(func(s lab.Spec) bool { return s.Driver == lab.WireGuardGo }) {
		return p, nil, nil
	}
	p.wireGuard = filepath.Join(dir, "wireguard")
	// A variable that the linker can set names the folder of its control socket: here the folder in which it is
	// started.
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/",
		"-ldflags=-X "+wireGuardModule+"/ipc.socketDirectory=.", wireGuardModule)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		missing = fmt.Errorf("it is built by Go from the modules of weft, so run it within weft's source: "+
			"%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return p, missing, nil
}
