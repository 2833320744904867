package manage

import (
	"context"
	"fmt"

	"weft/cmd/internal/custody"
)

// cleanHolder has the holder drop what it keeps for the next weftd, and end.
func (f *cleanupFlags) cleanHolder(ctx context.Context, c *cleaned) error {
	ask := custody.End
	if f.dryRun {
		ask = custody.Look
	}
	r, ok, err := ask(ctx, custody.SocketFor(f.Socket))
	if err != nil {
		return fmt.Errorf("end the holder of pods' descriptors at %s: %w; its --holder-timeout ends it",
			custody.SocketFor(f.Socket), err)
	}
	if ok {
		c.Removed = append(c.Removed, fmt.Sprintf("holder, pid %d, with %d descriptors of %d pods and ports", r.PID,
			r.Descriptors, r.Items))
	}
	return nil
}
