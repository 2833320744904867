package routing

import (
	"context"
	"encoding/json"
	"slices"

	"weft/lease"
	"weft/routing/hostrules"
	"weft/routing/internal/kernel"
	"weft/routing/internal/plane"
	"weft/routing/underlay"
	"weft/tunnel/port"
)

// BuiltIn are the types of this build, in the order in which messages name them. A new type is one file and
// one line here.
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

// Type is a type of backend, with everything that distinguishes it from others. Code that treats two types
// differently asks for what differs, here or in Facts, and never for the name.
type Type struct {
	// Name is the word of Backend.Type in the network config, in lower case.
	Name string
	// Device reports whether d has a name and a kind that the type gives its devices, as flannel does; nil for a
	// type without any. If such a device also has our mark, it is ours, and it is a leftover if the backend in
	// use does not need it.
	Device func(d kernel.Device) bool
	// Lasting says that flannel's devices of this type outlive flannel, so that one without our mark is a
	// leftover too.
	Lasting bool
	// Settings returns a pointer to the value into which a Backend object of this type is read; has says which
	// keys it has. c need not be valid: with the zero config, too, the settings declare their keys.
	Settings func(c lease.NetworkConfig, has func(key string) bool) settings
	// Help is what a reference says of the type's keys; those of which keyHelp says it are left out.
	Help map[string]string
}

// settings are the Backend object of a network config as one type understands it. Their fields are the keys
// (decode.go). They say what a node is to have, and leave the labour of keeping the kernel and the data plane
// so to the Node. They are pure, and not changed after they were read.
type settings interface {
	Facts() Facts
	// publish is Node.Publish.
	publish() (data, v6data json.RawMessage)
	// sizes are those of packets over the underlay as it is. Beside an error, which says why the backend
	// would not start there, they are what is possible, for the families that it suffices for.
	sizes(u underlay.Link) (mtus, error)
	// want says what becomes of the set.
	want(s situation) desired
}

// opener are settings of a type that finds out something about the host before a node can run, or that has a
// driver.
type opener interface {
	// open returns what the node runs by; the driver is nil for none. c.Logger and c.Kernel are not nil.
	open(ctx context.Context, c BackendConfig) (settings, driver, error)
}

// userSpacer are settings of a type that the kernel carries, or else the data plane.
type userSpacer interface {
	// inUserSpace is what the data plane of that node carries. why says why the kernel does not; "" if the
	// config does.
	inUserSpace(node, why string) settings
}

// checker are settings with keys that depend on each other.
type checker interface {
	// fault compares the keys, each of which is good. It is a *lease.ConfigError.
	fault() error
}

// Facts are what the rest of the program needs to know of a network's backend.
type Facts struct {
	// Carrier says who moves the packets.
	Carrier Carrier
	// Port is the UDP port that every node receives the overlay's datagrams on; 0 if there is none. Port6 is the
	// one over IPv6 where that is another; 0 for Port.
	Port, Port6 uint16
	// Guard says which rules of the host protect the port; its zero value asks for none. Underlay is the
	// controller's to fill in, and Peers counts only where it is the kernel that receives: weft's data plane
	// tells peers from strangers itself.
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
	// Commands are the operator's commands that the backend runs, in the order in which it runs them; nil for
	// none.
	Commands []Command

	// record is Node.RecordType; path is Status.Path of a type without a data plane.
	record, path string
	// asksHops says that it matters how the kernel would send to each peer: situation.hops is filled in.
	asksHops bool
	// tunnels says that datagrams to the peers' addresses carry the overlay: situation.displaced is filled in,
	// as for a data plane.
	tunnels bool
	// joinsHurt says that the data plane cannot take apart datagrams of UDP which the underlay's device has
	// joined: situation.joiner is filled in.
	joinsHurt bool
	// viaPublic says that flannel's routes by the type's device have the peer's address as their gateway, and
	// not its subnet's.
	viaPublic bool
	// uniform says that all peers are reached alike, so that only those that are not are worth a report.
	uniform bool
	// last says that the driver acts once the kernel is as wanted: the first time, that takes away what flannel
	// left, and would take away what commands had just made.
	last bool
	// plane is what the data plane is made with, but for what the node says; nil for a type whose packets the
	// kernel or others move. Where it is not, want has a spec, recv is what the lease record names of what this
	// node parses beyond one complete packet a datagram, and note is what works less well than it could; "" if
	// nothing does.
	plane *plane.Options
	recv  port.Recv
	note  string
	seals
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
	// Name is the kernel's, of a kind of device.
	Name string
	// Required says, in words that follow the error, why the backend does not work without it; "" if it does.
	Required string
}

// Probe asks the kernel, and does not change this network namespace. Its error wraps Missing if the kernel
// does not have the feature, and is another one if that is not known.
func (f Feature) Probe() error { return kernel.ProbeAside(f.Name) }

// Missing says that the kernel does not have the feature.
func (f Feature) Missing() error { return kernel.NoDriver(f.Name) }

// Command is one of those that the network config names.
type Command struct{ Key, Command string }

// Types are the types of backends that a program has. They are never changed once made.
type Types []Type

// device returns the type whose device d is by name and kind.
func (ts Types) device(d kernel.Device) (t Type, ok bool) {
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

// named returns the type of that name.
func (ts Types) named(name string) (t Type, ok bool) {
	if i := slices.IndexFunc(ts, func(t Type) bool { return t.Name == name }); i >= 0 {
		return ts[i], true
	}
	return Type{}, false
}
