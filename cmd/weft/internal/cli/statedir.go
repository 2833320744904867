package cli

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"weft/cmd/internal/running"
)

// StateDir returns the state directory of the weftd that runs here, else the usual one, and what is known of
// that weftd.
func (c *App) StateDir(ctx context.Context) (string, running.Process) {
	asked, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	s, err := c.Client().Status(asked)
	pid := c.Client().Listener(ctx)
	if err == nil {
		pid = running.Find(pid, s.PID)
	}
	p, unread := running.Read(pid)
	if err == nil && s.Cache.File != "" {
		dir := filepath.Dir(s.Cache.File)
		if _, gone := os.Stat(dir); gone == nil {
			return dir, p
		}
	}
	// One that is stopped does not answer, and one in a container has another view of the files: how it was
	// started is there in both cases.
	if cfg, _ := p.Settings(); unread == nil && cfg.CacheDir != "" {
		// what else is wrong with them is weft doctor's
		return p.Path(cfg.CacheDir), p
	}
	return cmp.Or(os.Getenv("WEFTD_CACHE_DIR"), UsualCacheDir), p
}

// UsualCacheDir is weftd's state directory unless it was told another.
const UsualCacheDir = "/var/lib/weft"
