package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/kubemode"
	"weft/lease"
	"weft/lease/etcd"
	"weft/lease/kube"
	"weft/routing"
)

// askTimeout bounds the one question to the store, or to the API server.
const askTimeout = 5 * time.Second

// askStore reads the store as weftd would when it starts. ok is false if there was no answer, or no question.
func (r *report) askStore(ctx context.Context, cfg options.Config) (s lease.Snapshot, ok bool) {
	switch {
	case cfg.Offline:
		r.remark("store: was not asked (--offline)")
		return s, false
	case cfg.UsesEmbedded():
		r.remark("store: is this daemon's own, and was not asked")
		return s, false
	}
	store, err := etcd.New(cfg.StoreClient(slog.New(slog.DiscardHandler)))
	if err != nil {
		return s, false // a fault that has been found already
	}
	defer func() { _ = store.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if s, err = store.Snapshot(ctx); err != nil {
		hint := ""
		if cfg.Store.CertFile == "" && strings.Contains(strings.Join(store.Endpoints(), " "), "https://") {
			hint = "; if it asks for a client certificate, name ours with --etcd-certfile and --etcd-keyfile"
		}
		r.fault(fmt.Errorf("the store cannot be read: %w%s (--offline checks without it)", err, hint))
		return s, false
	}
	r.remark("store: answers; records under %s/subnets: %d, at revision %d", cfg.Store.Prefix, len(s.Records), s.Revision)
	for _, b := range s.Bad {
		r.remark("store: the record %s is not believed (%s): %s", b.Key, b.Reason, b.Detail)
	}
	return s, true
}

// network reads the configuration with which weftd would start: the store's, else that of the file, if
// one was named.
func (r *report) network(ctx context.Context, cfg options.Config) lease.NetworkConfig {
	file, fromFile := r.networkFile(cfg)
	s, asked := r.askStore(ctx, cfg)
	key := cfg.Store.Prefix + "/config"
	switch {
	case asked && s.Config != nil:
		network, err := r.parse(s.Config, key)
		if err != nil {
			return guessed()
		}
		r.describe(network, "the store, "+key)
		if fromFile && !file.Equal(network) {
			r.remark("--net-config-path %s is another configuration, and only for a store that has none", cfg.NetConfigPath)
		}
		r.cached(cfg, network)
		return network
	case fromFile:
		r.describe(file, "file "+cfg.NetConfigPath)
		return file
	case asked && !cfg.NetConfigGiven:
		r.fault(fmt.Errorf("the store has no network configuration: a start would wait for %s", key))
	case !cfg.NetConfigGiven:
		r.remark("network config: comes from the store")
	}
	return guessed()
}

// networkFile reads the configuration file, if one was named.
func (r *report) networkFile(cfg options.Config) (n lease.NetworkConfig, ok bool) {
	if !cfg.NetConfigGiven {
		return n, false
	}
	b, err := os.ReadFile(cfg.NetConfigPath)
	if err != nil {
		r.fault(fmt.Errorf("--net-config-path: %w", err))
		return n, false
	}
	n, err = r.parse(b, "--net-config-path "+cfg.NetConfigPath)
	return n, err == nil
}

// parse reads a configuration, and says what is wrong with it. Here an unknown key is a fault.
func (r *report) parse(b []byte, where string) (lease.NetworkConfig, error) {
	network, err := routing.ParseConfig(b)
	if err != nil {
		r.fault(prefixed(where, err))
	}
	r.unknown(b, where)
	return network, err
}

func (r *report) unknown(b []byte, where string) {
	for _, u := range routing.UnknownKeys(b) {
		r.fault(fmt.Errorf("%s: %s", where, u))
	}
}

// prefixed puts where before each of the joined errors.
func prefixed(where string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s: %w", where, err)
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, prefixed(where, e))
	}
	return errors.Join(out...)
}

// cached says whether weftd, when it starts on this host, would use network or its last good configuration.
func (r *report) cached(cfg options.Config, network lease.NetworkConfig) {
	c, err := lease.NewCache(cfg.CacheDir, cfg.Store.Prefix).Load()
	if err != nil {
		return // there is none, or none that could be used
	}
	last, err := routing.ParseConfig(c.Memory.Config)
	if err != nil || last.Equal(network) {
		return
	}
	if err := network.Contains(c.Own.Subnets); err != nil && !cfg.Renumber {
		r.fault(fmt.Errorf("a start would go on with the last good network config: %w", err))
		return
	}
	r.remark("network config: a start would take it up in place of the last good one, %s, backend %s", lease.Subnets{V4: last.Network, V6: last.IPv6Network}, last.BackendType)
	if why := network.Unfit(c.Own.Subnets); why != "" {
		r.remark("network config: this node would get another subnet than %s, and its pods would be cut off: %s", c.Own.Subnets, why)
	}
}

// askKube looks our Node up as weftd would when it starts.
func (r *report) askKube(ctx context.Context, cfg options.Config, network lease.NetworkConfig) {
	if cfg.Offline {
		r.remark("API server: was not asked (--offline)")
		return
	}
	client, err := kube.New(kubemode.Client(cfg, slog.New(slog.DiscardHandler)))
	if err != nil {
		return // a fault that has been found already
	}
	defer func() { _ = client.Close() }() // nothing was written
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := client.Node(ctx)
	switch {
	case err != nil:
		r.fault(fmt.Errorf("the API server does not tell about our Node: %w (--offline checks without it)", err))
	case n.Subnets == lease.Subnets{}:
		r.fault(fmt.Errorf("the Node %s has no usable podCIDR: a start would wait", n.Name))
	default:
		r.remark("API server: the Node %s has %s", n.Name, n.Subnets)
		r.fault(network.Contains(n.Subnets))
	}
}
