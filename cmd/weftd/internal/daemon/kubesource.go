package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/internal/records"
	"weft/cmd/internal/statefiles"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/kubemode"
	"weft/lease"
	"weft/lease/atomicfile"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/lease/kube"
)

// kubeSource gets subnets from the Kubernetes API, and the network configuration from a file.
type kubeSource struct {
	cfg    options.Config
	log    *slog.Logger
	client *kube.Client
	fault  error // what was wrong with the file at the start
	// the last good configuration, which takes the place of a faulty file; nil for none
	good atomic.Pointer[kubemode.Network]
}

var _ conditioned = (*kube.Manager)(nil)

// openKube opens what can be opened without waiting for anyone.
func openKube(cfg options.Config, log *slog.Logger) (*kubeSource, error) {
	s := &kubeSource{cfg: cfg, log: log}
	var faults []error
	var err error
	var network kubemode.Network
	network, s.fault = kubemode.ReadNetwork(cfg.NetConfigPath)
	if s.client, err = kube.New(kubemode.Client(cfg, log.With("component", "kube"))); err != nil {
		faults = append(faults, err)
	}
	if cfg.NodeID != "" {
		_, _, err := lease.LoadIdentity(lease.IdentityOptions{Given: cfg.NodeID})
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, errors.Join(s.fault, err)
	}
	if len(network.Ignored) > 0 {
		log.Info("the cluster gives out subnets: these keys of the network configuration have no effect", "file",
			cfg.NetConfigPath, "keys", network.Ignored)
	}
	log.Info("subnets come from the Kubernetes API", "server", s.client.Endpoints(), "annotations",
		cfg.Kube.AnnotationPrefix, "network", cfg.NetConfigPath)
	return s, nil
}

// info has the fault of the file. Without a last good configuration weftd then ends, as flannel does, so that
// the pod's state shows it.
func (s *kubeSource) info() info {
	return info{
		name: "API server", where: s.cfg.NetConfigPath, cache: "kubernetes " + s.cfg.Kube.AnnotationPrefix,
		node: s.network(kubeNode{Name: s.cfg.Kube.NodeName}).node, routed: kubemode.Routed(s.cfg, s.client),
		fault: s.fault,
		store: control.Store{Kind: control.KindKubernetes, Endpoints: s.client.Endpoints(),
			Prefix: s.cfg.Kube.AnnotationPrefix},
	}
}

func (s *kubeSource) close() error { return s.client.Close() }

func (s *kubeSource) reload(ctx context.Context, cfg options.Config) (bool, error) {
	return s.client.Reload(ctx, kubemode.Client(cfg, s.log.With("component", "kube")))
}

// recall returns what the last run learnt of our Node, unless NODE_NAME is another one now.
func (s *kubeSource) recall(c belief.Cached) (Network, error) {
	known, err := s.loadNode()
	if err != nil {
		s.log.Debug("what the last run knew of the node is not used", "reason", err)
		known = kubeNode{Name: s.cfg.Kube.NodeName}
	}
	f := s.network(known)
	if c.Own.Subnets == (lease.Subnets{}) || f.node == "" || c.Own.Node() != f.node {
		return Network{}, fmt.Errorf("it has no subnet of the node %q, but one of %q", f.node, c.Own.Node())
	}
	was, err := kubemode.ParseNetwork(c.Memory.Config)
	if err != nil {
		return Network{}, err
	}
	s.good.Store(&was)
	f.config = was.Network
	return f, nil
}

// ask looks our Node up.
func (s *kubeSource) ask(ctx context.Context, heard func(error)) (f Network, why string) {
	network, err := kubemode.ReadNetwork(s.cfg.NetConfigPath)
	if good := s.good.Load(); err != nil && good != nil {
		network = *good
	} else if err != nil {
		return f, "config: " + err.Error()
	}
	if why := cutOff(ctx, s.cfg.Rootless.Place, s, network.NetworkConfig, s.log); why != "" {
		return f, "config: " + why
	}
	known, err := s.lookUp(ctx)
	heard(err)
	if err != nil {
		return f, "API server: " + err.Error()
	}
	f = s.network(known)
	f.config = network.Network
	return f, ""
}

// nodeTimeout bounds one look-up, which may ask for our pod first.
const nodeTimeout = 20 * time.Second

// lookUp asks once for our Node, and saves what it learns for a later start without the API server.
func (s *kubeSource) lookUp(ctx context.Context) (kubeNode, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	n, err := s.client.Node(ctx)
	if err != nil {
		return kubeNode{}, err
	}
	known := kubeNode{Name: n.Name, PublicIP: n.PublicIP, PublicIPv6: n.PublicIPv6}
	if err := s.saveNode(known); err != nil {
		s.log.Warn("a start without the API server would not know this node", "reason", err)
	}
	return known, nil
}

// network returns the network if our Node is n, without the network configuration.
func (s *kubeSource) network(n kubeNode) Network {
	f := Network{node: identity(n.Name), publicIP: n.PublicIP, publicIPv6: n.PublicIPv6}
	if s.cfg.NodeID != "" {
		f.node = s.cfg.NodeID
	}
	return f
}

// identity returns name if it is short enough for an identity, else the beginning of it and a
// checksum of the whole.
func identity(name string) string {
	const longest, digits = 63, 16
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:longest-digits-1] + "-" + hex.EncodeToString(sum[:digits/2])
}

// confirmFirst and confirmMost are the shortest and the longest time between look-ups after a
// start without the API server. No packet waits for them.
const confirmFirst, confirmMost = time.Second, 30 * time.Second

// confirm asks for our Node until there is an answer, and compares it with the network. It returns
// errNodeChanged if that does not hold any more, and nil if ctx ends first.
func (s *kubeSource) confirm(ctx context.Context, f Network) error {
	for wait := confirmFirst; ; wait = min(2*wait, confirmMost) {
		known, err := s.lookUp(ctx)
		switch now := s.network(known); {
		case err != nil: // the manager reports that the API server is silent
		case f.same(now):
			return nil
		default:
			return fmt.Errorf("%w: node %q with public addresses %q and %q, now node %q with %q and %q",
				errNodeChanged,
				f.node, text(f.publicIP), text(f.publicIPv6), now.node, text(now.publicIP), text(now.publicIPv6))
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

func (s *kubeSource) member(f Network, o keeper.Options) (member, error) {
	o.Logger = s.log.With("component", "kube")
	facts := f.config.Facts()
	m, err := kube.NewManager(s.client, kube.Options{
		Options: o,
		Backend: kube.Backend{Alone: facts.Alone, DataV4: facts.DataV4, DataV6: facts.DataV6},
	})
	if err != nil || o.Cached == nil {
		return m, err
	}
	return confirming{m, func(ctx context.Context) error { return s.confirm(ctx, f) }}, nil
}

// confirming is a manager that began with the network of the last run.
type confirming struct {
	*kube.Manager
	confirm func(context.Context) error
}

// Run implements member. It ends when the network turns out to be outdated.
func (c confirming) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.Manager.Run(ctx) })
	g.Go(func() error { return c.confirm(ctx) })
	return g.Wait()
}

// offered reads the file: a mounted ConfigMap changes in place.
func (s *kubeSource) offered(lease.Status) choice.Offer {
	now, err := kubemode.ReadNetwork(s.cfg.NetConfigPath)
	return choice.Offer{Known: true, Network: choice.Network{Network: now.Network}, Fault: err}
}

func (s *kubeSource) read(context.Context) (choice.Offer, int64, error) {
	return s.offered(lease.Status{}), 0, nil
}

// release refuses, since a node does not give its subnet back to the cluster.
func (s *kubeSource) release(context.Context, control.ReleaseRequest, string) (control.Released, error) {
	return control.Released{}, fmt.Errorf("%w: %s", control.ErrRefused, records.ClusterOwned)
}

// kubeNode is what weftd has to know of our Node to start before the API server answers.
type kubeNode struct {
	Name string `json:"name"`
	// PublicIP and PublicIPv6 are the annotations node-public-ip and node-public-ipv6.
	PublicIP   netip.Addr `json:"publicIP,omitzero"`
	PublicIPv6 netip.Addr `json:"publicIPv6,omitzero"`
}

// nodeFile returns its path in the cache directory.
func (s *kubeSource) nodeFile() string { return filepath.Join(s.cfg.CacheDir, statefiles.KubeNode) }

// maxNodeFile bounds the file, in bytes.
const maxNodeFile = 4096

// loadNode reads what the last run saved. It is an error too if NODE_NAME names another Node.
func (s *kubeSource) loadNode() (n kubeNode, err error) {
	f, err := os.Open(s.nodeFile())
	if err != nil {
		return n, err
	}
	defer func() { _ = f.Close() }() // only read
	if err := json.NewDecoder(io.LimitReader(f, maxNodeFile)).Decode(&n); err != nil {
		return kubeNode{}, fmt.Errorf("%s: %w", s.nodeFile(), err)
	}
	switch given := s.cfg.Kube.NodeName; {
	case n.Name == "":
		return n, fmt.Errorf("%s names no node", s.nodeFile())
	case given != "" && given != n.Name:
		return n, fmt.Errorf("%s is of the node %q, and NODE_NAME is %q", s.nodeFile(), n.Name, given)
	}
	return n, nil
}

// saveNode replaces what the last run saved, if it differs.
func (s *kubeSource) saveNode(n kubeNode) error {
	if before, err := s.loadNode(); err == nil && before == n {
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.nodeFile(), append(b, '\n'))
}
