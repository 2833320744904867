package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"weft/lease"
	"weft/lease/etcd/embedded"
	"weft/routing"
)

// live serves one network configuration after the other until ctx ends.
func (d *Daemon) live(ctx context.Context) error {
	network, cached := d.network, d.cached
	d.cached = nil // in a large network it is much, and outdated soon
	for {
		if cached == nil {
			var err error
			if network, err = d.waitConfig(ctx); err != nil {
				return nil // ctx ended
			}
		}
		use := cached
		cached = nil
		err := d.serve(ctx, network, use)
		var changed *lease.ConfigChangedError
		switch {
		case errors.As(err, &changed):
			d.log.Info("the store's network configuration is another than the cached one: starting over with it")
		case ctx.Err() != nil:
			return nil
		default:
			return err
		}
		d.setGeneration(nil)
	}
}

// fromCache returns what the last run knew, or nil: then the store comes first.
// Nothing that is wrong with the cache keeps the daemon from starting.
func (d *Daemon) fromCache() (lease.NetworkConfig, *lease.Cached) {
	c, err := d.cache.Load()
	if err != nil {
		d.log.Info("no last state: the store has to answer first", "reason", err)
		return lease.NetworkConfig{}, nil
	}
	if c.Own.Subnets == (lease.Subnets{}) || c.Own.Node() != d.node {
		d.log.Info("the last state has no lease of this node: the store has to answer first", "node", c.Own.Node())
		return lease.NetworkConfig{}, nil
	}
	network, err := routing.ParseConfig(c.Memory.Config)
	if err != nil {
		d.log.Warn("the last state cannot be used: the store has to answer first", "reason", err)
		return lease.NetworkConfig{}, nil
	}
	return network, &c
}

const waitFirst, waitMost = 100 * time.Millisecond, 2 * time.Second

// waitConfig asks the store until it has a configuration that can be used. A
// fault in the store is for its operator to mend, so it is waited out. The error
// is ctx's.
func (d *Daemon) waitConfig(ctx context.Context) (lease.NetworkConfig, error) {
	for wait := waitFirst; ; wait = min(2*wait, waitMost) {
		network, why := d.readConfig(ctx)
		if ctx.Err() != nil {
			return network, ctx.Err()
		}
		if why == "" {
			return network, nil
		}
		d.wait(why)
		if !pause(ctx, wait) {
			return network, ctx.Err()
		}
	}
}

// readConfig asks once; why says what is missing.
func (d *Daemon) readConfig(ctx context.Context) (network lease.NetworkConfig, why string) {
	s, err := d.store.Snapshot(ctx)
	d.asked(err)
	if err == nil && s.Config == nil && d.seed != nil {
		if seed, err := routing.ParseConfig(d.seed); err == nil { // it was checked when it was read
			if why := d.cutOff(ctx, seed); why != "" {
				return network, fmt.Sprintf("config: %s is not written to the store: %s", d.cfg.NetConfigPath, why)
			}
		}
		if err = d.store.CreateConfig(ctx, d.seed); err == nil {
			d.log.Info("the store had no network configuration: wrote that of the file", "file", d.cfg.NetConfigPath)
			s, err = d.store.Snapshot(ctx)
		}
	}
	if err != nil {
		return network, "store: " + err.Error()
	}
	key := d.cfg.Store.Prefix + "/config"
	if s.Config == nil {
		return network, fmt.Sprintf(`config: the store has none: put one, as in etcdctl put %s '{"Network":"10.5.0.0/16"}', or start one node with --net-config-path FILE`, key)
	}
	if network, err = routing.ParseConfig(s.Config); err != nil {
		return network, fmt.Sprintf("config: %s: %v", key, err)
	}
	if why := d.cutOff(ctx, network); why != "" {
		return network, "config: " + why
	}
	return network, ""
}

// embeddedRetry is the time between attempts to start the embedded etcd while
// packets flow without it.
const embeddedRetry = 5 * time.Second

// embedded runs the etcd server. If it cannot start the daemon ends, unless
// packets flow already: then they go on, and it is tried again.
func (d *Daemon) embedded(ctx context.Context) error {
	cfg := d.cfg.EmbeddedServer(d.log.With("component", "embedded-etcd"))
	for {
		err := runEmbedded(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !d.serving.isSet() {
			return fmt.Errorf("%w (see --embedded-etcd-dir and --embedded-etcd-listen)", err)
		}
		d.log.Error("the embedded etcd does not run; forwarding goes on without it", "reason", err, "retry", embeddedRetry)
		if !pause(ctx, embeddedRetry) {
			return nil
		}
	}
}

func runEmbedded(ctx context.Context, cfg embedded.Config) error {
	s, err := embedded.Start(ctx, cfg)
	if err != nil {
		return err
	}
	cfg.Logger.Info("embedded etcd serves", "endpoints", s.Endpoints(), "dir", cfg.Dir)
	err = s.Wait(ctx)
	if ctx.Err() != nil {
		// The daemon ends, and fast: what was acknowledged is on disk, as after a crash.
		return nil
	}
	return errors.Join(err, s.Close())
}

// readNetConfig reads and checks a network configuration file.
func readNetConfig(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if _, err := routing.ParseConfig(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}
