package daemon

import (
	"context"
	"log/slog"
	"net/netip"

	"weft/cmd/internal/control"
	"weft/cmd/internal/options"
	"weft/cmd/weftd/internal/choice"
	"weft/cmd/weftd/internal/kubemode"
	"weft/lease"
	"weft/lease/belief"
	"weft/lease/keeper"
	"weft/routing"
)

// source is the store from which subnets come: etcd (etcdsource.go) or the Kubernetes API
// (kubesource.go). Its methods are safe for concurrent use.
type source interface {
	// info says what the source is. It asks nobody.
	info() info
	// ask asks the source for the network, once; why says what is still missing. heard is called
	// with the error of the answer, nil if there was one.
	ask(ctx context.Context, heard func(error)) (f Network, why string)
	// recall returns the network of the last run, if weftd may start with it; the error says why not.
	recall(c belief.Cached) (Network, error)
	// offered returns the network configuration that it was last seen to have; st is the member's state.
	offered(st lease.Status) choice.Offer
	// read asks for the network configuration that it has now. The revision is the store's, 0 for a file.
	read(ctx context.Context) (o choice.Offer, revision int64, err error)
	// member makes the part that keeps this node's lease of f. It adds to o what is the source's own.
	member(f Network, o keeper.Options) (member, error)
	// reload makes it be reached as cfg says, with the files as they are now, and reports whether that is
	// another way than before. With an error it is reached as before.
	reload(ctx context.Context, cfg options.Config) (changed bool, err error)
	// release deletes the record of req; self is this node's identity.
	release(ctx context.Context, req control.ReleaseRequest, self string) (control.Released, error)
	close() error
}

// runner is a source with work of its own in the background.
type runner interface {
	// run works until ctx ends. serving reports whether packets flow, so that a fault is no reason to end.
	run(ctx context.Context, serving func() bool) error
}

// info is what a source is, apart from its answers.
type info struct {
	name  string // in messages: "store", "API server"
	where string // where the network configuration is, for a message
	cache string // tells its cached state from that of another source
	node  string // our identity, "" if that is not known before the source has answered
	// routed are those of its endpoints, as URLs or host:port, whose addresses packets really
	// have: that of a Kubernetes Service is translated before a packet is routed.
	routed    []string
	allocates bool  // the network configuration says which subnets nodes get
	fault     error // ends weftd if it has no last good state; nil if weftd is to wait for the source
	store     control.Store
}

// openSource opens what can be opened of the source without waiting for anyone.
func openSource(cfg options.Config, log *slog.Logger) (source, error) {
	if cfg.Kube.On {
		return openKube(cfg, log)
	}
	return openEtcd(cfg, log)
}

// sourceFiles returns the files by which the source is reached as cfg says; certificates have dates.
func sourceFiles(cfg options.Config, log *slog.Logger) (certificates, others []string) {
	if cfg.Kube.On {
		return kubemode.Client(cfg, log).Files()
	}
	return cfg.StoreClient(log).Files()
}

// Network is what weftd has to know of its network and its node to carry packets.
type Network struct {
	// node is our identity.
	node   string
	config routing.Network
	// publicIP and publicIPv6, if valid, replace --public-ip and --public-ipv6.
	publicIP, publicIPv6 netip.Addr
}

// same reports whether f and g say the same of this node.
func (f Network) same(g Network) bool {
	return f.node == g.node && f.publicIP == g.publicIP && f.publicIPv6 == g.publicIPv6
}

// member keeps this node's lease, and publishes the complete set of records whenever it
// changes. It is a keeper.Keeper or a kube.Manager.
type member interface {
	Run(ctx context.Context) error
	Status() lease.Status
	SetLocal(l keeper.Local)
	// Proven says that the network configuration can be served, and may be cached.
	Proven()
}

// aging is a member whose records are renewed without a new set for each renewal.
type aging interface {
	// Current returns peers with the ends of their records as far as they are known by now.
	Current(peers []lease.Record) []lease.Record
}

// conditioned is a member that publishes the state of our data path.
type conditioned interface {
	// SetDataPath is called at every change. broken is "" while packets are carried; former is ""
	// unless pods have addresses of subnets that are not ours any more, and alone unless no peer answers.
	SetDataPath(broken, former, alone string)
}
