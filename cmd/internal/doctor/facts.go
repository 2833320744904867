package doctor

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"time"

	"weft/cmd/internal/control"
	"weft/cmd/internal/custody"
	"weft/cmd/internal/diagnose"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/lease"
	"weft/routing"
	"weft/routing/hostrules"
	"weft/routing/underlay"
)

// Facts are what Gather read. A part that could not be read has an error that says why.
type Facts struct {
	Now time.Time
	// Start says that the question is what a start of weftd would meet. One that runs, or a flanneld, may be
	// what it replaces: its port and its devices are not the start's fault.
	Start    bool
	Settings Settings
	Daemon   Daemon
	Kernel   Kernel
	Links    Links
	Store    Store
	Network  Network
	Port     Port
	Firewall Firewall
	Files    []CertFile
	// HookErr says what is wrong with the files with which the controller of a network of type route-hook is
	// asked; nil if nothing is, or none is named.
	HookErr error
}

// Settings are those with which weftd runs here, or would.
type Settings struct {
	options.Config
	// From says where they were read: of which process, or of which environment. Err is what is wrong with them.
	From string
	Err  error
	// Given says that weftd starts with these and no others; of variables alone nobody knows that.
	Given bool
	// Proxy is that by which the running weftd asks etcd, as its environment says; "" for none.
	Proxy string
	// NotKnown is why nobody knows those of the weftd of this host; they are the defaults then. Nothing that
	// depends on them is looked at: neither files nor a store that this node may have nothing to do with.
	NotKnown string
}

// Daemon is what the running weftd says.
type Daemon struct {
	// Asked says that it was asked. Err is why it did not answer.
	Asked bool
	Err   error
	// PID is its process, as it is called here; 0 if that is not known.
	PID int
	// Descriptors is how many it has open, and MayOpen how many it may have; 0 if that is not known.
	Descriptors, MayOpen int
	Status               control.Status
	Peers                control.Peers
	Leases               control.Leases
	// StoreLost are its events of lately that say that the store does not answer it, the oldest first.
	StoreLost []events.Event
	// Later is what it says of its peers at the end of Gather, and Peers at the beginning.
	Later control.Peers
	// Elsewhere says that its network namespace is another one than that of the doctor.
	Elsewhere bool
	// Holder is what a holder at the control socket keeps for a weftd that does not run; HolderErr why it could
	// not be asked.
	Holder    custody.Report
	HolderErr error
}

// Answers reports whether weftd was asked, and answered.
func (d Daemon) Answers() bool { return d.Asked && d.Err == nil }

// has reports whether the sockets of a process, whose name is as the kernel has it, are weftd's: its own, or
// kept for the next one by a holder or the service manager. In a container process 1 is something else.
func (d Daemon) has(pid int, name string) bool {
	switch {
	case pid == 0:
		return false
	case d.Answers():
		return pid == d.PID || pid == d.Status.PID
	}
	return pid == d.PID || pid == d.Holder.PID || pid == 1 && name == "systemd"
}

// Kernel is what the kernel, and who runs here, can do.
type Kernel struct {
	Release string
	// TUN is why /dev/net/tun cannot be opened; nil if it can. Feature is what asking for the backend's feature
	// said, if it has one.
	TUN, Feature error
	// NetAdmin and NetRaw are capabilities in effect of weftd, or of the doctor itself; Whose says of which.
	NetAdmin, NetRaw bool
	CapabilitiesErr  error
	Whose            string
	// Ordinary says that they are the doctor's own, and that it is not run as root.
	Ordinary bool
	// Settings are the values of /proc/sys/net by their names with slashes; a name that is not there does not
	// exist.
	Settings map[string]string
	// Neighbours are its tables of neighbours; none where it does not show them, as in a network namespace of a
	// container.
	Neighbours []Neighbours
	// ReversePathDrops is how many packets rp_filter dropped while the doctor looked.
	ReversePathDrops uint64
}

// Neighbours is the kernel's table of neighbours of one family, which all network namespaces share.
type Neighbours struct {
	// Family is IPv4 or IPv6. Entries is how many there are, Refused how often there was no room since the host
	// started, and Lately how often of these while the doctor looked.
	Family                   string
	Entries, Refused, Lately int
}

// Links are links, addresses, routes and rules of this network namespace.
type Links struct {
	Err error
	// Links by number, and their addresses but for those that only the link itself knows.
	Links []Link
	// Routes of the main table, and Rules that lead to other tables.
	Routes []Route
	Rules  []Rule
	// Silent are neighbours that the kernel asked for in vain, and Pinned those that somebody set.
	Silent map[netip.Addr]string
	Pinned map[netip.Addr]bool
	// Neighbours are the next hops to this host's own address, and to peers of which something is odd.
	Neighbours map[netip.Addr]diagnose.Neighbour
	// To are the ways that the kernel takes to peers' addresses, and to addresses in their subnets.
	To map[netip.Addr]RouteLookup
	// Underlay is what weftd chooses, or chose; UnderlayErr why there is none.
	Underlay    underlay.Link
	UnderlayErr error
}

func (l Link) has(addr netip.Addr) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
}

func (l Links) named(name string) (link Link, ok bool) {
	i := slices.IndexFunc(l.Links, func(x Link) bool { return x.Name == name })
	if i < 0 {
		return Link{}, false
	}
	return l.Links[i], true
}

// nextHop is the gateway to an address, or itself on a link of this host's.
func (l Links) nextHop(a netip.Addr) netip.Addr {
	if w := l.To[a]; w.Gateway.IsValid() {
		return w.Gateway
	}
	return a
}

// Link is a network device.
type Link struct {
	Index       int
	Name, Alias string
	Kind        string
	MTU         int
	Up, Carrier bool
	Addrs       []netip.Prefix
	// Master is the number of the link, such as a bridge, that has this one as a port; 0 for none.
	Master int
	// UDPPort is that of a vxlan device.
	UDPPort int
}

// Route is a unicast, or a blocking, route of the main table, one for each next hop.
type Route struct {
	Dst      netip.Prefix
	Gateway  netip.Addr
	Link     string
	Metric   int
	Protocol int
	// Blocks says that packets are dropped or refused by it.
	Blocks bool
}

// Rule is a policy rule in front of the one for the main table.
type Rule struct {
	Priority int
	Table    int
	// To are destinations that it takes; invalid for all. Narrow says that it looks at more than the
	// destination.
	To     netip.Prefix
	Narrow bool
	Text   string
}

// RouteLookup is the kernel's answer to where a packet goes.
type RouteLookup struct {
	Link    string
	Gateway netip.Addr
	MTU     int
	Err     error
}

// Store is what the store of the leases answered.
type Store struct {
	// Asked is false if nobody was to be asked, and Why says why.
	Asked bool
	Why   string
	// What is its name in sentences.
	What string
	// Check is what is wrong with its settings; Warnings are allowed, and probably not meant.
	Check     error
	Warnings  []string
	Endpoints []Endpoint
	// Guessed says that the endpoints are the default ones.
	Guessed bool
	// Err is why the records could not be read.
	Err      error
	Snapshot lease.Snapshot
}

// answering is how many endpoints answer.
func (s Store) answering() (n int) {
	for _, e := range s.Endpoints {
		if e.Err == nil {
			n++
		}
	}
	return n
}

// Endpoint is one of the store's.
type Endpoint struct {
	URL   string // without secrets
	Addrs []netip.Addr
	// Err is why it does not answer.
	Err error
	// Alarm is why etcd says that it is not well; "" if it does not.
	Alarm string
	// Ahead is by how much its clock is ahead of ours, give or take Within; Clock says that it told.
	Clock         bool
	Ahead, Within time.Duration
	// Shown is the certificate that it showed; nil without TLS.
	Shown *x509.Certificate
}

// Network is the network configuration.
type Network struct {
	routing.Network
	// From says where its text is from. Err is why it cannot be used, or that there is none.
	From string
	Err  error
	// Last is the configuration with which weftd last worked here, the zero one if its cache has none.
	Last routing.Network
	// LastStore is the --etcd-prefix of that run if it is another than the one that is set, else "".
	LastStore string
	// Saved is the record that the last state in --cache-dir has as the node's own, of any store and node.
	Saved lease.Record
	// Records are the nodes' records, from where RecordsFrom says; empty for nowhere.
	Records     []lease.Record
	RecordsFrom string
	// Own is this node's subnet, as far as is known.
	Own lease.Subnets
	// MTU is the largest inner packet over the underlay; 0 if that is not known. MTUErr is why there is none.
	MTU    int
	MTUErr error
}

func (n Network) known() bool { return n.Err == nil && len(n.Networks()) > 0 }

// HasLast reports whether it is known with which configuration weftd last worked here.
func (n Network) HasLast() bool { return n.Last.Raw != nil }

// Port says who has the overlay's port.
type Port struct {
	Err error
	// Holders are the processes that have it, besides weftd itself; Device is a vxlan link of the kernel's with
	// it.
	Holders []Holder
	Device  string
}

// Holder is a socket's owner. PID is 0 if it is not visible.
type Holder struct {
	PID  int
	Name string
	At   netip.AddrPort
}

// CertFile is a PEM file that the settings name.
type CertFile struct {
	Flag, Path string
	Err        error
	// Begins and Ends are those of the certificate in it that counts.
	Begins, Ends time.Time
}

// Firewall has the firewalls of the host that may drop what the overlay needs.
type Firewall struct {
	Err      error
	Suspects []hostrules.Suspect
}
