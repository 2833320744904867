package options

import (
	"net/netip"
	"time"

	"weft/lease/etcd"
	"weft/routing/routehook"
)

// Config has what the command line and the environment ask for. It holds values
// only: nothing has been opened, resolved or created.
type Config struct {
	Store    Store
	Embedded Embedded
	Underlay Underlay
	Kube     Kube
	Rules    Rules
	Log      Log
	Rootless Rootless
	// Hook says where the controller of a network of type route-hook is.
	Hook routehook.Options

	// Workers is how many threads the data plane keeps busy at most. It is no flag: main
	// derives it from GOMAXPROCS.
	Workers int

	// SubnetFile is the path of subnet.env, to which the subnet is written, and from which the previous one is
	// read.
	SubnetFile string
	// RenewMargin is how long before its end the lease is renewed: 1 to 1439 minutes.
	RenewMargin time.Duration
	// HealthzIP and HealthzPort are where /healthz, /readyz and /metrics are served. Port 0 is off.
	// HealthzIPGiven says that HealthzIP was asked for; without, it is flannel's default, all addresses.
	HealthzIP      netip.Addr
	HealthzIPGiven bool
	HealthzPort    int
	// MetricsPerPeer says that /metrics has series for each peer.
	MetricsPerPeer bool
	// MetricsPerPod says that /metrics has series for each pod that is attached directly.
	MetricsPerPod bool
	// NetConfigPath is the network configuration with Kubernetes. With etcd it seeds an empty
	// store, and only if it was asked for (NetConfigGiven), since flannel has a default for it.
	NetConfigPath  string
	NetConfigGiven bool
	// ControlSocket is the Unix socket that weft asks; "" serves none.
	ControlSocket string
	// HolderTimeout is how long a holder keeps descriptors, of the data plane's ports and of pods' interfaces,
	// while no weftd runs; 0 is for no holder.
	HolderTimeout time.Duration
	// Replace says that this weftd takes the place of the one that answers on its control socket.
	Replace bool
	// CacheDir holds the node's identity and the last good set.
	CacheDir string
	// WireGuardKeyFile is the file of the private key of type wireguard, from the variable WIREGUARD_KEY_FILE,
	// which is flannel's; "" for one in CacheDir.
	WireGuardKeyFile string
	// NodeID is the node's identity; "" means the stored or derived one.
	NodeID string
	// NodeName is what people call the node; "" means the host's name. In Kubernetes it is the Node's name.
	NodeName string

	// Confine is which rights weftd gives up once it knows its settings: one of ConfineWords.
	Confine string

	// Renumber lets weftd, when it starts, adopt a network that does not contain the node's subnet.
	Renumber bool

	// Probe has this node ask its peers through the overlay whether they answer, and answer theirs.
	Probe bool

	// AllowExtension permits the commands of a network configuration of type extension, whoever may have written
	// it.
	AllowExtension bool

	// EnvironmentFile has variables as lines NAME=value, which count more than those of the environment; "" for
	// none.
	EnvironmentFile string

	// Check and Version are modes, not settings: they have no environment variable.
	Check, Version bool
	// Offline keeps Check from asking the store or the Kubernetes API.
	Offline bool

	// Settings are all flags with the values in force and their sources, by name.
	Settings []Setting
	// Unknown are environment variables that begin with WEFTD_ and name no flag. Unused are
	// those of flannel's manifests that it needs and weft does not.
	Unknown, Unused []string

	// endpointsGiven says that the endpoints are not the default ones.
	endpointsGiven bool
	// sources says, for each flag that was given, where it came from, by name.
	sources map[string]string
}

// Rights that weftd gives up once it knows its settings. Each of these words includes the one before.
const (
	ConfineOff          = "off"          // nothing
	ConfineCapabilities = "capabilities" // the capabilities that it has no need of, and getting new ones
	ConfineFiles        = "files"        // writing to other files than its own
)

// ConfineWords are the values of --confine.
func ConfineWords() []string { return []string{ConfineOff, ConfineCapabilities, ConfineFiles} }

// Store says how etcd is reached.
type Store struct {
	// Endpoints are URLs or host:port.
	Endpoints []string
	// Prefix is the root of all keys, without a trailing slash.
	Prefix string
	// CAFile, CertFile and KeyFile are PEM files. Each is honoured on its own, but a
	// certificate needs its key.
	CAFile, CertFile, KeyFile string
	// Username and Password, or the first line of PasswordFile, go together.
	Username     string
	Password     etcd.Secret
	PasswordFile string
}

// Embedded asks for an etcd server inside the daemon.
type Embedded struct {
	On bool
	// Dir holds its data.
	Dir string
	// Listen is where it serves clients; zero is a Unix socket in Dir, for root alone. Anything but
	// loopback needs TLS or Insecure.
	Listen netip.AddrPort
	// Insecure allows plain HTTP on an address that others can reach.
	Insecure bool
}

// Underlay says which interface carries the overlay and what peers are told.
type Underlay struct {
	// Ifaces are names or addresses, Regexes match addresses, then names; CanReach is
	// an address whose route names the interface. They are tried in this order.
	Ifaces, Regexes []string
	CanReach        netip.Addr
	// PublicIP and PublicIPv6 are what peers are told; the zero Addr is the interface's own.
	PublicIP, PublicIPv6 netip.Addr
	// Forwarding is what is done with the interface's feature rx-udp-gro-forwarding: auto, on or off; "" for
	// what the network config says.
	Forwarding string
}

// Kube asks for subnets from the Kubernetes API instead of etcd.
type Kube struct {
	On bool
	// APIURL and Kubeconfig say how the API server is reached; with neither, as from
	// within a pod.
	APIURL, Kubeconfig string
	// AnnotationPrefix begins the names of the annotations on nodes.
	AnnotationPrefix string
	// SetNodeNetworkUnavailable keeps the node's condition NetworkUnavailable.
	SetNodeNetworkUnavailable bool
	// NodeName is the name of our Node object; if it is empty, the Node of the pod is ours. All three come
	// from the variables NODE_NAME, POD_NAME and POD_NAMESPACE, as manifests set them.
	NodeName, PodName, PodNamespace string
}

// Rules are the flags about traffic rules.
type Rules struct {
	// IPMasq masquerades packets that leave the overlay, with random source ports unless
	// RandomFullyDisable; it is also written to subnet.env. ForwardRules accepts forwarded
	// packets of the overlay. Blackhole adds a blackhole route for the own subnet.
	IPMasq, RandomFullyDisable, ForwardRules, Blackhole bool
	// Resync is the time between checks of the rules about whose changes the kernel does not notify.
	Resync time.Duration
}

// Log says what is logged and how.
type Log struct {
	// Format is text or json. Verbosity is klog's: 1 and more is debug.
	Format    string
	Verbosity int
	// VModule and BacktraceAt are accepted and unused.
	VModule, BacktraceAt string
}

// Rootless asks for a network of an ordinary user's: the underlay's sockets are made where weftd was started,
// and the TUN is in another network namespace.
type Rootless struct {
	// On says that weftd works in a user namespace of the user's: asked for by --rootless, or found by itself.
	On bool
	// Given says that --rootless was asked for, or forbidden.
	Given bool
	// TUNNetns is the namespace of the TUN: a path, or the id of a process that is in it; "" is a new one if On,
	// and otherwise the one that weftd was started in.
	TUNNetns string

	// Place is where weftd found itself after it went there. It is no flag: main derives it.
	Place Place
}

// Place is the network namespace of the TUN, if that is not the one of the underlay.
type Place struct {
	// Elsewhere says that it is another one; FD is its descriptor.
	Elsewhere bool
	FD        int
	// User says that weftd has rights there, and none over the underlay's namespace.
	User bool
	// Path is the file that named it, PID a process in it by which others enter; 0 if none is known. Own says
	// that weftd made it.
	Path string
	PID  int
	Own  bool
	// Inside says that weftd went into a user namespace for it, and Outer which id the user has outside.
	Inside bool
	Outer  string
}

// Setting is one flag as it is in force.
type Setting struct {
	Name string
	// Value is as printed; a secret shows as "set".
	Value string
	// Source is "flag", "env NAME" or "default", with what the default follows from in brackets, if it follows
	// from anything.
	Source string
}
