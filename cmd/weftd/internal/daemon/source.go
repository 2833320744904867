package daemon

import (
	"context"
	"net/netip"

	"weft/cmd/internal/control"
	"weft/lease"
	"weft/lease/subnetenv"
)

// source is where subnets come from: etcd (etcdsource.go) or the Kubernetes API (kubesource.go).
// Its methods are safe for concurrent use.
type source interface {
	// name is what it is called in a reason or a message: "store", "API server".
	name() string
	// routed are its endpoints, as URLs or host:port, that packets go to as they stand: the
	// address of a Kubernetes Service is translated before.
	routed() []string
	// cacheName tells its cached state from that of another.
	cacheName() string
	// node is our identity, "" if that is not known before the source has been asked.
	node() string
	// recall is what the last run stood on, if a start may go by it; the error says why not.
	recall(c lease.Cached) (footing, error)
	// ask asks for it, once; why says what is missing yet. heard is told whether there was
	// an answer.
	ask(ctx context.Context, heard func(error)) (f footing, why string)
	// confirm returns nil if what recall said still holds, or if ctx ends first, and else
	// errFootingChanged.
	confirm(ctx context.Context, f footing) error
	// member makes this node's part in the network.
	member(o memberOptions) (member, error)
	// run is what goes on in the background besides, until ctx ends. serving reports whether
	// packets flow, so that a fault is no reason to end.
	run(ctx context.Context, serving func() bool) error
	// offered is the network configuration that it has now; st is the member's state.
	offered(st lease.Status) offer
	// where says where that is, for a message.
	where() string
	// allocates reports whether the network configuration says which subnets nodes get.
	allocates() bool
	// startable says what keeps a start from succeeding that has no last good state; nil if that
	// is still to be found out.
	startable() error
	// status describes it as it was heard.
	status(st lease.Status) control.Store
	// release deletes the record of req; self is who asks.
	release(ctx context.Context, req control.ReleaseRequest, self string) (control.Released, error)
	close() error
}

// footing is what a generation stands on.
type footing struct {
	// node is our identity.
	node string
	// network is the network configuration, and raw its text.
	network lease.NetworkConfig
	raw     []byte
	// publicIP and publicIPv6 take the place of --public-ip and --public-ipv6, if valid.
	publicIP, publicIPv6 netip.Addr
}

// same reports whether what f says of this node holds of g too.
func (f footing) same(g footing) bool {
	return f.node == g.node && f.publicIP == g.publicIP && f.publicIPv6 == g.publicIPv6
}

// member keeps this node's subnet and publishes who else has one: a lease.Keeper or a
// kube.Manager.
type member interface {
	Run(ctx context.Context) error
	Status() lease.Status
	SetLocal(l lease.Local)
	// Proven says that the network configuration can be served, and may be cached.
	Proven()
}

// aging is a member whose records have a life that a set does not follow.
type aging interface {
	// Current is peers with what is known of their ends by now.
	Current(peers []lease.Record) []lease.Record
}

// conditioned is a member that tells others how our data path is.
type conditioned interface {
	// SetDataPath is told at every change; broken is "" while packets are carried, and former
	// unless pods have addresses of subnets that are not ours any more.
	SetDataPath(broken, former string)
}

// memberOptions is what a member is made from.
type memberOptions struct {
	footing footing
	local   lease.Local
	before  subnetenv.File // what the last run wrote
	cache   *lease.Cache
	cached  *lease.Cached
	publish func(lease.Set)
	// state names our state directory, "" for none; alive asks the underlay who lives.
	state string
	alive lease.Underlay
}
