package routing

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/vishvananda/netlink"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/underlay"
)

// BuiltIn are the types of this build, in the order in which messages name them. A new type is one file and one line here.
func BuiltIn() Types {
	return Types{
		udpType(),
		vxlanType(),
		autoType(),
		hostGWType(),
		allocType(),
		extensionType(),
	}
}

// Type is a type of backend: all that distinguishes it from others. Whoever treats two types differently asks for
// what differs, here or in Facts, and never for the name.
type Type struct {
	// Name is the word of Backend.Type in the network config, in lower case.
	Name string
	// Device reports whether l has a name and a kind that the type gives its devices, as flannel does; nil for a type
	// without any. What has our mark besides is ours, and a leftover where the backend in use keeps it not.
	Device func(l netlink.Link) bool
	// Lasting says that flannel's devices outlive it: one without our mark is a leftover too.
	Lasting bool
	// Settings returns what a Backend object of this type is read into. c need not be valid: of the
	// zero config too the settings declare their keys.
	Settings func(c lease.NetworkConfig) Settings
}

// Settings are the Backend object of a network config as one type understands it. They belong to one
// goroutine.
type Settings interface {
	// Keys declares the keys of the Backend object that the type reads, and sets what they are read into
	// to what it is without them. Faults are reported in this order.
	Keys() []Key
	// Facts is asked after the keys have been read.
	Facts() Facts
	// MTU is the largest inner packet, in bytes, over the underlay u. The error says why the backend
	// would not start there; beside it, MTU is what would be possible.
	MTU(u underlay.Link) (int, error)
	// Open makes the backend, as NewBackend describes it. c.Logger is not nil.
	Open(ctx context.Context, c BackendConfig) (Backend, error)
}

// Facts are what the rest of the program needs to know of a network's backend.
type Facts struct {
	// Carrier says who moves the packets.
	Carrier Carrier
	// Port is the UDP port that every node receives the overlay's datagrams on; 0 if there is none.
	Port uint16
	// Guard says which rules of the host protect the port; its zero value asks for none. Underlay is the controller's to
	// fill in, and Peers counts only where it is the kernel that receives: weft's data plane tells peers from
	// strangers itself.
	Guard hostrules.Guard
	// Feature is what the type has the kernel do that not every kernel can; nil for nothing.
	Feature *Feature
	// Direct says that pods are reached at their nodes' own addresses, without an overlay: what
	// translates those addresses on the way is not passed.
	Direct bool
	// Alone says that the type has no peers: other nodes' records are not looked at.
	Alone bool
	// DataV4 and DataV6 say that a node without BackendData, or without BackendV6Data, is not reached in that
	// family at all. Where records are annotations of Kubernetes nodes, the family is then left out.
	DataV4, DataV6 bool
	// Commands are the operator's that the backend runs, in the order in which it does; nil if it runs none.
	Commands []Command
}

// Carrier says who moves the packets between nodes.
type Carrier uint8

const (
	_ Carrier = iota
	// CarrierWeft is the data plane of this program, which needs a TUN.
	CarrierWeft
	// CarrierKernel is the kernel, which is only told what to do.
	CarrierKernel
	// CarrierEither is the kernel where it has Facts.Feature, and else the data plane.
	CarrierEither
	// CarrierOthers is whatever else runs on the host.
	CarrierOthers
)

// Feature is something that not every kernel can do.
type Feature struct {
	// Name is the kernel's.
	Name string
	// Probe asks the kernel, and leaves this network namespace alone. Its error wraps Missing
	// if the kernel has it not, and is another one if that could not be found out.
	Probe   func() error
	Missing error
	// Required says why there is no doing without it, in words that follow the error; "" where there is.
	Required string
}

// Command is one of those that the network config names.
type Command struct{ Key, Command string }

// Types are the types of backends that a program has. They are never changed once made.
type Types []Type

// device returns the type whose device l is by name and kind.
func (ts Types) device(l netlink.Link) (t Type, ok bool) {
	for _, t := range ts {
		if t.Device != nil && t.Device(l) {
			return t, true
		}
	}
	return Type{}, false
}

// Names lists the types.
func (ts Types) Names() []string {
	names := make([]string, len(ts))
	for i, t := range ts {
		names[i] = t.Name
	}
	return names
}

// Settings reads the Backend object of c. The error joins a *lease.ConfigError for each fault in it.
func (ts Types) Settings(c lease.NetworkConfig) (Settings, error) {
	for _, t := range ts {
		if t.Name == c.BackendType {
			s := t.Settings(c)
			return s, readKeys(c, s.Keys())
		}
	}
	return nil, &lease.ConfigError{Key: "Backend.Type", Got: fmt.Sprintf("%q", c.BackendType), Want: fmt.Sprintf("one of %q", ts.Names())}
}

// Facts are those of the backend that c names; the zero Facts for a config that ParseConfig refuses.
func (ts Types) Facts(c lease.NetworkConfig) Facts {
	s, err := ts.Settings(c)
	if err != nil {
		return Facts{}
	}
	return s.Facts()
}

// MTU is the largest inner packet, in bytes, that the backend of c would have over u, without making it. The
// error is why it would not start over u, or about c.
func (ts Types) MTU(c lease.NetworkConfig, u underlay.Link) (int, error) {
	s, err := ts.Settings(c)
	if err != nil {
		return 0, err
	}
	mtu, err := s.MTU(u)
	if err != nil {
		return mtu, fmt.Errorf("%s backend over %s: %w", c.BackendType, u.Name, err)
	}
	return mtu, nil
}

// Open makes the backend that c.Network names. It starts nothing that runs on; the caller runs Run or
// calls Close. ctx bounds what has to be done before there is a lease. The error joins a *lease.ConfigError
// for each fault in the network config.
func (ts Types) Open(ctx context.Context, c BackendConfig) (Backend, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := ts.Settings(c.Network)
	if err != nil {
		return nil, err
	}
	if u := c.Underlay; s.Facts().Direct && (u.Ext4 != u.Addr4 || u.Ext6 != u.Addr6) {
		return nil, fmt.Errorf("%s backend: peers would be told %v, and %s has %v: routes need the address of the link itself: leave out --public-ip, or use vxlan or udp, which pass a NAT",
			c.Network.BackendType, valid(u.Ext4, u.Ext6), u.Name, u.Local())
	}
	c.guard = s.Facts().Guard
	return s.Open(ctx, c)
}

// NewBackend is BuiltIn().Open.
func NewBackend(ctx context.Context, c BackendConfig) (Backend, error) { return BuiltIn().Open(ctx, c) }

// OverlayMTU is BuiltIn().MTU.
func OverlayMTU(c lease.NetworkConfig, u underlay.Link) (int, error) { return BuiltIn().MTU(c, u) }

// FactsOf is BuiltIn().Facts.
func FactsOf(c lease.NetworkConfig) Facts { return BuiltIn().Facts(c) }
