package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/internal/records"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/etcdchild"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/etcd"
	"weft/lease/etcd/embedded"
	"weft/lease/keeper"
	"weft/routing"
)

// etcdSource is an etcd that has the leases and the network configuration.
type etcdSource struct {
	cfg   options.Config
	log   *slog.Logger
	store *etcd.Store
	id    string
	seed  []byte // network configuration for a store that has none, or nil
	// program is the path of weft-etcd; "" if there is no embedded etcd. run writes server, and close reads it
	// after run has returned.
	program string
	server  *etcdchild.Process
}

// openEtcd opens what can be opened without waiting for anyone, and finds our identity.
func openEtcd(cfg options.Config, log *slog.Logger) (*etcdSource, error) {
	storeCfg := cfg.StoreClient(log.With("component", "etcd"))
	warnings, err := storeCfg.Check()
	for _, w := range warnings {
		log.Warn("store", "warning", w)
	}
	if err != nil {
		return nil, err
	}
	s := &etcdSource{cfg: cfg, log: log}
	if cfg.Embedded.On {
		if s.program, err = etcdchild.Find(); err != nil {
			return nil, err
		}
	}
	if s.seed, err = loadSeed(cfg); err != nil {
		return nil, err
	}
	var from lease.IdentitySource
	if s.id, from, err = lease.LoadIdentity(lease.IdentityOptions{Given: cfg.NodeID, CacheDir: cfg.CacheDir,
		Part: cfg.IdentityPart()}); errors.Is(err, lease.ErrNotStored) {
		log.Warn("this node's identity is not kept for the next start", "node", s.id, "reason", err)
	} else if err != nil {
		return nil, err
	}
	if s.store, err = etcd.New(storeCfg); err != nil {
		return nil, err
	}
	log.Info("leases are in etcd", "node", s.id, "identity", from.String(), "store", s.store.Endpoints(),
		"prefix", cfg.Store.Prefix)
	if from == lease.IdentityRandom {
		log.Warn("there is no /etc/machine-id: this node's identity was drawn at random and lasts as long as the "+
			"cache directory does; "+
			"keep that on the host, or give --node-id, or the next start is another node's to the store", "dir",
			cfg.CacheDir)
	}
	return s, nil
}

// loadSeed reads the network configuration that weftd writes into a store without one.
func loadSeed(cfg options.Config) ([]byte, error) {
	if !cfg.NetConfigGiven {
		return nil, nil
	}
	b, err := readNetConfig(cfg.NetConfigPath)
	if err != nil {
		return nil, fmt.Errorf("--net-config-path: %w", err)
	}
	return b, nil
}

var _ runner = (*etcdSource)(nil)

func (s *etcdSource) info() info {
	i := info{
		name: "store", where: "the store, " + s.cfg.Store.Prefix + "/config", cache: s.cfg.Store.Prefix, node: s.id,
		routed: s.store.Endpoints(), allocates: true,
		store: control.Store{Kind: "etcd", Endpoints: s.store.Endpoints(), Prefix: s.cfg.Store.Prefix},
	}
	if s.cfg.Embedded.On {
		i.store.Kind = "embedded etcd"
	}
	return i
}

func (s *etcdSource) reload(ctx context.Context, cfg options.Config) (bool, error) {
	return s.store.Reload(ctx, cfg.StoreClient(s.log.With("component", "etcd")))
}

func (s *etcdSource) close() error {
	err := s.store.Close()
	if s.server != nil {
		s.server.Close()
	}
	return err
}

func (s *etcdSource) recall(c belief.Cached) (Network, error) {
	if c.Own.Subnets == (lease.Subnets{}) || c.Own.Node() != s.id {
		return Network{}, fmt.Errorf("it has no lease of this node, but one of %q", c.Own.Node())
	}
	network, err := routing.Parse(c.Memory.Config)
	return Network{node: s.id, config: network}, err
}

// ask reads the network configuration. If that has a fault, why says so, since only an operator can mend it.
func (s *etcdSource) ask(ctx context.Context, heard func(error)) (f Network, why string) {
	f.node = s.id
	snap, err := s.store.Snapshot(ctx)
	heard(err)
	if err == nil && snap.Config == nil && s.seed != nil {
		if seed, err := routing.Parse(s.seed); err == nil { // it was checked when it was read
			if why := cutOff(ctx, s.cfg.Rootless.Place, s, seed.NetworkConfig, s.log); why != "" {
				return f, fmt.Sprintf("config: %s is not written to the store: %s", s.cfg.NetConfigPath, why)
			}
		}
		if err = s.store.CreateConfig(ctx, s.seed); err == nil {
			s.log.Info("the store had no network configuration: wrote that of the file", "file", s.cfg.NetConfigPath)
			snap, err = s.store.Snapshot(ctx)
		}
	}
	if err != nil {
		return f, "store: " + err.Error()
	}
	key := s.cfg.Store.Prefix + "/config"
	if snap.Config == nil {
		return f, fmt.Sprintf("config: the store has none: write %s, a JSON object with Network, the range of "+
			"all pods, "+
			"or start one node with --net-config-path FILE", key)
	}
	if f.config, err = routing.Parse(snap.Config); err != nil {
		return f, fmt.Sprintf("config: %s: %v", key, err)
	}
	if why := cutOff(ctx, s.cfg.Rootless.Place, s, f.config.NetworkConfig, s.log); why != "" {
		return f, "config: " + why
	}
	return f, ""
}

func (s *etcdSource) member(_ Network, o keeper.Options) (member, error) {
	o.CheckConfig, o.Seed, o.RenewMargin = checkConfig, s.seedFor(o.Config), s.cfg.RenewMargin
	o.Logger = s.log.With("component", "lease")
	return keeper.New(s.store, o)
}

func checkConfig(raw []byte) (lease.NetworkConfig, error) {
	n, err := routing.Parse(raw)
	return n.NetworkConfig, err
}

// seedFor returns what weftd writes into a store without a configuration while network is in use:
// the text of --net-config-path, unless it is another network's by now. When etcd has lost
// everything, its new configuration must not be a network in which the pods are not.
func (s *etcdSource) seedFor(network lease.NetworkConfig) []byte {
	if s.seed == nil {
		return nil
	}
	if file, err := routing.Parse(s.seed); err != nil || !file.Equal(network) {
		s.log.Warn("--net-config-path is not the configuration in use, which is the store's: the file is for a "+
			"store that has none, and one that loses its own is not given it either",
			"file", s.cfg.NetConfigPath, "remedy", "to have that of the file: etcdctl put "+s.cfg.Store.Prefix+
				"/config <"+s.cfg.NetConfigPath)
		return nil
	}
	return s.seed
}

// offered returns the configuration that the keeper read last.
func (s *etcdSource) offered(st lease.Status) choice.Offer {
	if !st.ConfigSeen {
		return choice.Offer{}
	}
	return offerOf(st.StoreConfig, st.ConfigErr)
}

// read does not go by the watch, which is a moment behind: an operator writes a configuration and reloads at
// once.
func (s *etcdSource) read(ctx context.Context) (o choice.Offer, revision int64, err error) {
	raw, revision, err := s.store.Config(ctx)
	if err != nil {
		return choice.Offer{}, 0, err
	}
	return offerOf(raw, keeper.ErrNoConfig), revision, nil
}

// offerOf is the offer of a configuration; absent is its fault if there is none.
func offerOf(raw []byte, absent error) choice.Offer {
	o := choice.Offer{Known: true, Fault: absent}
	if raw != nil {
		o.Network.Network, o.Fault = routing.Parse(raw)
	}
	return o
}

// release refuses our own record, which is in use.
func (s *etcdSource) release(ctx context.Context, req control.ReleaseRequest, self string) (control.Released,
	error) {
	return records.Release(ctx, s.store, req, func(r lease.Record) error {
		if r.Node() == self {
			return errors.New("it is this node's own, in use by its pods; stop weftd first, or use --force")
		}
		return nil
	})
}

// embeddedRetry is the time between attempts to start the embedded etcd while
// packets flow without it.
const embeddedRetry = 5 * time.Second

// run runs the embedded etcd server, if there is to be one. If that cannot start, the daemon
// ends, unless packets flow already; then run tries again.
func (s *etcdSource) run(ctx context.Context, serving func() bool) error {
	if !s.cfg.Embedded.On {
		return nil
	}
	cfg := s.cfg.EmbeddedServer(s.log.With("component", "embedded-etcd"))
	for {
		err := s.runEmbedded(ctx, cfg)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !serving() {
			return fmt.Errorf("%w (see --embedded-etcd-dir and --embedded-etcd-listen)", err)
		}
		s.log.Error("the embedded etcd does not run; forwarding goes on without it", "reason", err, "retry",
			embeddedRetry)
		if !pause(ctx, embeddedRetry) {
			return nil
		}
	}
}

// runEmbedded returns nil when ctx ends, and does not end the server, which close does: until then the store
// is there for the last writes of the daemon.
func (s *etcdSource) runEmbedded(ctx context.Context, cfg embedded.Config) error {
	p, err := etcdchild.Start(ctx, s.program, cfg)
	if err != nil {
		return err
	}
	s.server = p
	cfg.Logger.Info("embedded etcd serves", "endpoints", p.Endpoints(), "dir", cfg.Dir)
	return p.Wait(ctx)
}
