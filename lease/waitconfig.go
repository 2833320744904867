package lease

import (
	"context"
	"log/slog"
	"time"
)

// WaitConfig returns the store's network configuration and its text. It waits
// while the store does not answer or has none, and writes seed, if that is not
// nil, into a store that has none. The error is about a configuration that does
// not parse, or ctx's.
func WaitConfig(ctx context.Context, store Store, seed []byte, log *slog.Logger) (NetworkConfig, []byte, error) {
	for failures := 0; ; {
		s, err := store.Snapshot(ctx)
		if err == nil && s.Config != nil {
			cfg, err := ParseNetworkConfig(s.Config)
			return cfg, s.Config, err
		}
		if err == nil && seed != nil {
			if err = store.CreateConfig(ctx, seed); err == nil {
				continue
			}
		}
		if err == nil {
			err = ErrNoConfig
		}
		if ctx.Err() != nil {
			return NetworkConfig{}, nil, context.Cause(ctx)
		}
		failures++
		log.Warn("waiting for the network configuration", "cause", err)
		timer := time.NewTimer(min(time.Duration(failures)*backoffFirst, 5*backoffFirst))
		select {
		case <-ctx.Done():
			timer.Stop()
			return NetworkConfig{}, nil, context.Cause(ctx)
		case <-timer.C:
		}
	}
}
