package routing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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
		wireGuardType(),
		ipipType(),
		allocType(),
		extensionType(),
		hookType(),
	}
}

// Type is a type of backend, with everything that distinguishes it from others. Code that treats two types differently
// asks for what differs, here or in Facts, and never for the name.
type Type struct {
	// Name is the word of Backend.Type in the network config, in lower case.
	Name string
	// Device reports whether d has a name and a kind that the type gives its devices, as flannel does; nil for a type
	// without any. If such a device also has our mark, it is ours, and it is a leftover if the backend in use does not
	// need it.
	Device func(d Device) bool
	// Lasting says that flannel's devices of this type outlive flannel, so that one without our mark is a leftover too.
	Lasting bool
	// Settings returns the value into which a Backend object of this type is read. c need not be valid: with the
	// zero config, too, the settings declare their keys.
	Settings func(c lease.NetworkConfig) Settings
}

// Device is a device of this host, as far as a type needs it to recognise one of its own.
type Device struct {
	Name string
	// Kind is the kernel's name of the driver, as "ip -d link" shows it ("vxlan", "wireguard"); for a TUN it is "tun",
	// and for a TAP "tap", which have one driver.
	Kind string
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

// checker are Settings with keys that depend on each other.
type checker interface {
	// check compares the keys, each of which is good. Its error is a *lease.ConfigError.
	check() error
}

// Facts are what the rest of the program needs to know of a network's backend.
type Facts struct {
	// Carrier says who moves the packets.
	Carrier Carrier
	// Port is the UDP port that every node receives the overlay's datagrams on; 0 if there is none. Port6 is the one over IPv6 where that is
	// another; 0 for Port.
	Port, Port6 uint16
	// Guard says which rules of the host protect the port; its zero value asks for none. Underlay is the controller's to
	// fill in, and Peers counts only where it is the kernel that receives: weft's data plane tells peers from
	// strangers itself.
	Guard hostrules.Guard
	// Feature is what the type has the kernel do that not every kernel can; nil for nothing.
	Feature *Feature
	// Direct says that packets to pods go to their nodes' own addresses without a tunnel, so that a node behind
	// an address translation is not reached.
	Direct bool
	// Privilege says what a type needs that an ordinary user's process cannot have; "" if there is nothing.
	Privilege string
	// OnlyIPv4 says, for a type that knows no IPv6, why not; "" for the others.
	OnlyIPv4 string
	// Alone says that the type has no peers: other nodes' records are not looked at.
	Alone bool
	// DataV4 and DataV6 say that a node without BackendData, or without BackendV6Data, is not reached in that
	// family at all. If records are annotations of Kubernetes nodes, the family of such a node is left out.
	DataV4, DataV6 bool
	// Controller says that a controller of the operator's, which BackendConfig.Hook names, programs the routes.
	Controller bool
	// Commands are the operator's commands that the backend runs, in the order in which it runs them; nil for none.
	Commands []Command
}

// carriedAs is f, of a type that the kernel or this program carries, with what the word of the key Userspace makes of it: doing is what
// userNever forbids to do without the kernel.
func (f Facts) carriedAs(word, doing string) Facts {
	switch word {
	case userAlways:
		f.Carrier, f.Feature = CarrierWeft, nil
	case userNever:
		f.Carrier = CarrierKernel
		f.Feature.Required = `"Userspace":"never" forbids to ` + doing + " without"
	}
	return f
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
	// Probe asks the kernel, and does not change this network namespace. Its error wraps Missing
	// if the kernel does not have the feature, and is another one if that is not known.
	Probe   func() error
	Missing error
	// Required says, in words that follow the error, why the backend does not work without it; "" if it does.
	Required string
}

// Command is one of those that the network config names.
type Command struct{ Key, Command string }

// Types are the types of backends that a program has. They are never changed once made.
type Types []Type

// device returns the type whose device d is by name and kind.
func (ts Types) device(d Device) (t Type, ok bool) {
	for _, t := range ts {
		if t.Device != nil && t.Device(d) {
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
			err := errors.Join(encryptMisplaced(c), readKeys(c, append(s.Keys(), probeKey(new(bool)))))
			if why := s.Facts().OnlyIPv4; why != "" && c.EnableIPv6 {
				err = errors.Join(err, &lease.ConfigError{Key: "EnableIPv6", Got: "true", Want: "false: " + why + "; udp, vxlan, host-gw and wireguard carry both"})
			}
			if x, ok := s.(checker); ok && err == nil {
				err = x.check()
			}
			return s, err
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
	if err := c.between(s.Facts()); err != nil {
		return nil, fmt.Errorf("%s backend: %w", c.Network.BackendType, err)
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
