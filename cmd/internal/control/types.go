package control

import (
	"net/netip"
	"time"

	"weft/cmd/internal/custody"
	"weft/cmd/internal/podport"
	"weft/cmd/internal/socket"
	"weft/lease"
	"weft/routing"
	"weft/tunnel"
)

// DefaultSocket is where weftd listens unless it is told otherwise.
const DefaultSocket = socket.Default

// Status is the daemon's state in one page.
type Status struct {
	Version string `json:"version"`
	// Name is what people call the node, on every node: "" if its host has no name and none was given.
	Name      string    `json:"name,omitempty"`
	NodeID    string    `json:"nodeID"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	// Uptime is in seconds.
	Uptime int64 `json:"uptimeSeconds"`
	// Ready is what /readyz answers; NotReady are its reasons.
	Ready    bool     `json:"ready"`
	NotReady []string `json:"notReady,omitempty"`
	// NotReadyCodes and NoteCodes name NotReady and Notes, one by one.
	NotReadyCodes []Code `json:"notReadyCodes,omitempty"`
	// Notes say what an operator should know although the node is ready: that no peer is usable and
	// why, or that the network configuration is the last good one.
	Notes     []string `json:"notes,omitempty"`
	NoteCodes []Code   `json:"noteCodes,omitempty"`
	// Namespace is where the TUN and the pods are, if that is another network namespace than the underlay's.
	Namespace *Namespace `json:"namespace,omitempty"`
	// Lease is nil until one is known.
	Lease   *Lease  `json:"lease,omitempty"`
	Backend Backend `json:"backend"`
	// Controller is nil for a backend whose routes no controller of the operator's programs.
	Controller *Controller `json:"controller,omitempty"`
	Underlay   Underlay    `json:"underlay"`
	Store      Store       `json:"store"`
	Cache      Cache       `json:"cache"`
	Rules      Rules       `json:"rules"`
	Config     Config      `json:"config"`
	// Custody is nil while nothing is kept for the next weftd.
	Custody *Custody `json:"custody,omitempty"`
	// Alarm says why records that are gone from the store still count.
	Alarm string `json:"alarm,omitempty"`
	// Pods are those that are attached directly; nil if there are none.
	Pods     *PodCounts `json:"pods,omitempty"`
	Peers    int        `json:"peers"`
	Rejected int        `json:"rejected"`
	Counters Counters   `json:"counters"`
}

// Namespace is a network namespace.
type Namespace struct {
	// PID is a process in it, 0 if none is known; Path the file that named it.
	PID  int    `json:"pid,omitempty"`
	Path string `json:"path,omitempty"`
	// Own says that weftd made it. Rootless says that weftd has rights in it, and none where the underlay is.
	Own      bool `json:"own,omitempty"`
	Rootless bool `json:"rootless,omitempty"`
	// Enter is the beginning of a command line that runs a program in it.
	Enter string `json:"enter,omitempty"`
	// Out is where what is neither for a pod nor for a peer leaves; nil while that is not known.
	Out *WayOut `json:"out,omitempty"`
}

// WayOut names the links of the default routes of a network namespace.
type WayOut struct {
	// IPv4 and IPv6 are empty without one.
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
	// Masquerade says that packets of pods' leave with the namespace's own address, without which slirp4netns
	// and pasta bring no answers to pods.
	Masquerade bool `json:"masquerade,omitempty"`
}

// Custody says who keeps descriptors of pods and ports for the next weftd.
type Custody = custody.Status

// PodCounts counts pods by the states that podport has.
type PodCounts struct {
	Attached int `json:"attached"`
	Waiting  int `json:"waiting"`
	Missing  int `json:"missing"`
	// Problems is how many of all have one; weft pods says which.
	Problems int `json:"problems"`
	// Packets that all pods sent, that were delivered to them, and that were dropped, since weftd began to
	// carry packets; pods that are gone count too.
	podport.Traffic
	RefusedPackets uint64 `json:"refusedPackets"`
	// Busiest are the pods that sent and received most bytes, that one first, MostBusiest at the most; weft pods
	// has all.
	Busiest []PodTraffic `json:"busiest,omitempty"`
}

// MostBusiest is how many pods a Status names.
const MostBusiest = 5

// PodTraffic is what passed of one interface of a pod since it was attached, or weftd began to carry packets.
type PodTraffic struct {
	podport.Key
	Name string `json:"name,omitempty"`
	podport.Traffic
	RefusedPackets uint64 `json:"refusedPackets"`
}

// Lease is this node's own record.
type Lease struct {
	Subnet     netip.Prefix `json:"subnet,omitzero"`
	IPv6Subnet netip.Prefix `json:"ipv6Subnet,omitzero"`
	// Held says that the store has confirmed it since the daemon started and that it
	// has not ended; otherwise it is the cached one.
	Held bool `json:"held"`
	// Reservation is a record without an end. Expires is zero for it.
	Reservation bool      `json:"reservation,omitempty"`
	Expires     time.Time `json:"expires,omitzero"`
	Detail      string    `json:"detail,omitempty"`
}

// Backend says how packets are carried.
type Backend struct {
	Type string `json:"type,omitempty"`
	// Path is portable, socket or raw.
	Path string `json:"path,omitempty"`
	// Encrypt says what comes and goes encrypted only, by rules of the host: always, or between-links.
	Encrypt string `json:"encrypt,omitempty"`
	Device  string `json:"device,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	Port    int    `json:"port,omitempty"`
	// InPlace says that device, addresses and routes are as wanted.
	InPlace bool `json:"inPlace"`
	// Notes say what was taken over from flannel, and which peers cannot be used.
	Notes []string `json:"notes,omitempty"`
	// LastReconcile is when the kernel was last compared with what is wanted. Error says what
	// could not be done then.
	LastReconcile time.Time `json:"lastReconcile,omitzero"`
	Error         string    `json:"error,omitempty"`
}

// Controller is what the operator's controller made of the routes that this node gave it (type route-hook).
type Controller = routing.HookStatus

// Underlay is the interface that carries the overlay.
type Underlay struct {
	Link string `json:"link,omitempty"`
	MTU  int    `json:"mtu,omitempty"`
	// Lost says what of it is missing now.
	Lost string `json:"lost,omitempty"`
	// Forwarding says what became of the device's feature rx-udp-gro-forwarding, if weft has to do with it.
	Forwarding string `json:"rxUDPGROForwarding,omitempty"`
	// Devices are the link and those under it, where weft itself moves the packets. DevicesUnknown says why
	// they are not known.
	Devices        []Device `json:"devices,omitempty"`
	DevicesUnknown string   `json:"devicesUnknown,omitempty"`
	// Address and IPv6Address are local; PublicIP and PublicIPv6 are those that peers are told.
	Address     netip.Addr `json:"address,omitzero"`
	IPv6Address netip.Addr `json:"ipv6Address,omitzero"`
	PublicIP    netip.Addr `json:"publicIP,omitzero"`
	PublicIPv6  netip.Addr `json:"publicIPv6,omitzero"`
}

// Device is a device that carries the overlay's datagrams.
type Device struct {
	Name string `json:"name"`
	// Features are those that are on, by ethtool's names, of the ones that matter to the data path.
	Features []string `json:"features"`
}

// KindKubernetes is a Store's Kind where subnets come from the Kubernetes API.
const KindKubernetes = "kubernetes"

// SlowStore is how long a store may take to answer: one that takes longer is said to be slow.
const SlowStore = time.Second

// Store is the state of the connection to the store of the leases.
type Store struct {
	// Kind is etcd, "embedded etcd" or KindKubernetes. With the last, Prefix is that of the
	// annotations.
	Kind      string   `json:"kind"`
	Endpoints []string `json:"endpoints,omitempty"`
	Prefix    string   `json:"prefix,omitempty"`
	Connected bool     `json:"connected"`
	// LastSeen is when it last answered; Error says why it does not answer now.
	LastSeen time.Time `json:"lastSeen,omitzero"`
	Error    string    `json:"error,omitempty"`
	// Took is how long it takes to answer, if that is known; more than SlowStore is slow.
	Took time.Duration `json:"tookNanoseconds,omitempty"`
	// Refuses says that it answers, and that Error is its refusal: a right or a credential is missing.
	Refuses bool `json:"refuses,omitempty"`
	// FailingSince is when Error began, if that is known: it has answered since if LastSeen is later.
	FailingSince time.Time `json:"failingSince,omitzero"`
	ClusterID    string    `json:"clusterID,omitempty"`
	Revision     int64     `json:"revision,omitempty"`
}

// Cache is the last good set on disk.
type Cache struct {
	File string `json:"file,omitempty"`
	// SavedAt is when it was written; zero if there is none.
	SavedAt time.Time `json:"savedAt,omitzero"`
	// Used says that weftd began to forward packets with it when it started.
	Used bool `json:"used"`
}

// Counters count inner packets since the daemon started.
type Counters struct {
	Egress         Flow   `json:"egress"`
	Ingress        Flow   `json:"ingress"`
	ICMPSent       uint64 `json:"icmpSent"`
	ICMPSuppressed uint64 `json:"icmpSuppressed"`
	Fragmented     uint64 `json:"fragmented"`
	Completed      uint64 `json:"checksumsCompleted"`
	// SocketOverflow and DeviceDropped count what the kernel dropped because a receive buffer, or
	// the queue of the overlay's device, was full. The socket's count includes datagrams of peers
	// that are held back, and those whose checksum was wrong.
	SocketOverflow uint64 `json:"socketOverflow"`
	DeviceDropped  uint64 `json:"deviceDropped"`
	// HeldBack is how many peers are held back now because they filled a receive buffer that others share.
	HeldBack int `json:"heldBack,omitempty"`
	// Devices are those that the packets pass where the kernel moves them, which counts for devices and for no
	// peer. The rest of the counters says nothing then.
	Devices []DeviceCounters `json:"devices,omitempty"`
	// Workers share the packets out among them; their Egress and Ingress add up to those received above.
	Workers []Worker `json:"workers,omitempty"`
	// Offloads are those of the path; path portable has none.
	Offloads []Offload `json:"offloads,omitempty"`
	// Outlets say how superpackets leave from each of the underlay's addresses that is on path raw.
	Outlets []Outlet `json:"outlets,omitempty"`
}

// DeviceCounters are what the kernel has counted on a device.
type DeviceCounters = routing.DeviceTraffic

// Worker is what one worker of the data plane has done.
type Worker = tunnel.WorkerStats

// Outlet is how superpackets leave from one of the underlay's addresses.
type Outlet struct {
	Local netip.AddrPort `json:"local"`
	// Outlet is whole or runs, or cut where each datagram is a send of its own since udp-gso is lost or off.
	// Because says why it was chosen.
	Outlet  string `json:"outlet"`
	Because string `json:"because"`
}

// Offload is work that the kernel does for many packets at once.
type Offload struct {
	Name string `json:"name"`
	// State is on, switched off, not supported by this kernel, lost (the kernel refused it), or broken (what it
	// sends does not arrive whole).
	State string `json:"state"`
	// Calls counts the system calls that used it, and Packets the packets that they moved.
	Calls   uint64 `json:"calls"`
	Packets uint64 `json:"packets"`
}

// Flow is one direction: Received = Delivered + the sum of Drops.
type Flow struct {
	Received       uint64 `json:"received"`
	Delivered      uint64 `json:"delivered"`
	ReceivedBytes  uint64 `json:"receivedBytes"`
	DeliveredBytes uint64 `json:"deliveredBytes"`
	// Drops has only the reasons that occurred.
	Drops []Drop `json:"drops,omitempty"`
}

// Drop says how many packets were dropped for one reason.
type Drop = podport.Drop

// Peers has the nodes with which this node exchanges packets, and the senders that are none of them.
type Peers struct {
	Peers []Peer `json:"peers"`
	// Probing says that peers are asked whether they answer.
	Probing   bool       `json:"probing,omitempty"`
	Strangers []Stranger `json:"strangers,omitempty"`
}

// Peer is one other node.
type Peer struct {
	// Name is what people call the node: its host's name, or what it was told; in Kubernetes the Node object's
	// name. It is the identity of a node that published no name, and the subnet of one that published neither.
	// Two nodes may have one name.
	Name string `json:"name"`
	// NodeID is the node's identity, "" if it published none.
	NodeID  string         `json:"nodeID,omitempty"`
	Subnets []netip.Prefix `json:"subnets"`
	// Address is the one to which packets are sent.
	Address netip.Addr `json:"address,omitzero"`
	// Weft says that the node runs weft.
	Weft bool `json:"weft"`
	// Recv are the forms of datagrams that it takes besides flannel's: "gso", "pcsum", "pack", "probe", "runs".
	// A flannel node takes none of them.
	Recv []string `json:"recv,omitempty"`
	// Path says what moves packets to the peer: portable, socket or raw, or kernel or command if weft
	// does not move them itself.
	Path string `json:"path,omitempty"`
	// MTU is the largest inner packet; PathMTU the outer one learnt from the network, 0 if none.
	MTU     int `json:"mtu,omitempty"`
	PathMTU int `json:"pathMTU,omitempty"`
	// Traffic is nil, and its fields are absent, when the kernel moves the packets: then nobody counts
	// for each peer.
	*Traffic
	Drops []Drop `json:"drops,omitempty"`
	// Expires is the end of its lease, zero for a reservation or if unknown.
	Expires time.Time `json:"expires,omitzero"`
	// Probes are what this node's questions to the peer have shown, for each of its addresses that is asked.
	Probes []Probe `json:"probes,omitempty"`
	// Unreachable is what ICMP last said of datagrams to the peer; nil if it said nothing, or the kernel moves
	// the packets: then nobody is told.
	Unreachable *Unreachable `json:"unreachable,omitempty"`
	// Encryption is what WireGuard knows of the peer, for each device that it is a peer of; none with another
	// backend.
	Encryption []Encryption `json:"encryption,omitempty"`
	// Reached says for each subnet how packets get there, if the backend knows more than one answer.
	Reached []Reached `json:"ways,omitempty"`
}

// Probe is what is known of one overlay address of a peer, which this node asks whether it answers.
type Probe struct {
	Address netip.Addr `json:"address"`
	// By is udp for a node that answers weft's questions, and icmp for one whose kernel is asked.
	By string `json:"by"`
	// Answers is yes, no or unknown, and has been so since Since. LastAnswer is zero if there was none.
	Answers    string    `json:"answers"`
	Since      time.Time `json:"since"`
	LastAnswer time.Time `json:"lastAnswer,omitzero"`
	// RTT is the smoothed round trip, and MinRTT the shortest lately; 0 if none was measured.
	RTT    int64 `json:"rttNanoseconds,omitempty"`
	MinRTT int64 `json:"minRTTNanoseconds,omitempty"`
	// LossOut and LossIn are the parts of the last 64 datagrams to the peer and from it that were lost, from 0
	// to 1; nil if there were none. Loss is the same for questions by icmp, of which nobody knows in which
	// direction they or their answers were lost.
	LossOut *float64 `json:"lossOut,omitempty"`
	LossIn  *float64 `json:"lossIn,omitempty"`
	Loss    *float64 `json:"loss,omitempty"`
	// Lossy says that so much is lost that the log says so.
	Lossy bool `json:"lossy,omitempty"`
	// PathMTU is the largest inner packet that passed, in bytes; 0 if none has yet. LargeLost says that larger
	// ones are sent, and lost.
	PathMTU   int  `json:"innerPathMTU,omitempty"`
	LargeLost bool `json:"largeLost,omitempty"`
	// Silence says what of the peer answers, if it does not, in the words of MatrixCell, and Unsent why this
	// host cannot send to it.
	Silence string `json:"silence,omitempty"`
	Unsent  string `json:"unsent,omitempty"`
	// Likely is what is wrong with its cause, or those that are not excluded, Look what tells, and Causes their
	// codes; "" if nothing is wrong. Package diagnose fills them in: weftd states facts only.
	Likely string   `json:"likely,omitempty"`
	Look   string   `json:"look,omitempty"`
	Causes []string `json:"causes,omitempty"`
}

// Unreachable is what ICMP said of datagrams to a peer: that they do not arrive.
type Unreachable struct {
	// Says is "port unreachable", "protocol unreachable", "administratively prohibited", "host unreachable",
	// "network unreachable" or "unreachable"; By is who said it.
	Says string     `json:"says"`
	By   netip.Addr `json:"by,omitzero"`
	// Count is how many such messages came, the last at Last.
	Count uint64    `json:"count"`
	Last  time.Time `json:"last"`
}

// Traffic counts what the data plane has exchanged with one peer, in inner packets.
type Traffic struct {
	TxPackets uint64    `json:"txPackets"`
	TxBytes   uint64    `json:"txBytes"`
	RxPackets uint64    `json:"rxPackets"`
	RxBytes   uint64    `json:"rxBytes"`
	LastSeen  time.Time `json:"lastSeen,omitzero"`
}

// Reached says how one subnet of a peer is reached.
type Reached struct {
	Subnet netip.Prefix `json:"subnet"`
	// How is route, tunnel, command, controller, or skipped: not reached.
	How string `json:"way"`
	// Via is the peer's address on the underlay.
	Via netip.Addr `json:"via,omitzero"`
	// Reason says why it is not reached, or not as it could best be.
	Reason string `json:"reason,omitempty"`
}

// Stranger is an address that sent to our port and is no peer's.
type Stranger struct {
	Address  netip.Addr `json:"address"`
	Packets  uint64     `json:"packets"`
	LastSeen time.Time  `json:"lastSeen,omitzero"`
	Admit    string     `json:"admit,omitempty"`
}

// Leases is every record in the store.
type Leases struct {
	// Source says where they were read: from the daemon's last set, or from the store itself.
	Source   string           `json:"source"`
	Network  string           `json:"network,omitempty"`
	Leases   []Record         `json:"leases"`
	Rejected []lease.Rejected `json:"rejected,omitempty"`
}

// Record is one subnet with its owner.
type Record struct {
	Subnet     netip.Prefix `json:"subnet,omitzero"`
	IPv6Subnet netip.Prefix `json:"ipv6Subnet,omitzero"`
	PublicIP   netip.Addr   `json:"publicIP,omitzero"`
	PublicIPv6 netip.Addr   `json:"publicIPv6,omitzero"`
	// Node is the owner's identity, "" for a node that does not run weft; in Kubernetes the
	// Node object's name.
	Node string `json:"node,omitempty"`
	// Name is what people call the owner, "" if it published neither name nor identity.
	Name    string `json:"name,omitempty"`
	Backend string `json:"backend,omitempty"`
	// Own says that it is ours.
	Own         bool      `json:"own,omitempty"`
	Reservation bool      `json:"reservation,omitempty"`
	Expires     time.Time `json:"expires,omitzero"`
	// Revision is the store's; 0 in Kubernetes.
	Revision int64 `json:"revision"`
}

// ReleaseRequest asks for a record to be deleted.
type ReleaseRequest struct {
	// Subnet is the record's subnet as people write it: of one family, or both with a comma.
	Subnet string `json:"subnet"`
	// Force also deletes a record that its owner is using: our own.
	Force bool `json:"force,omitempty"`
}

// Released has the record that was deleted, as it was before.
type Released struct {
	Record Record `json:"record"`
}
